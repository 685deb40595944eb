# The checkers as tests: their own tests (each rule is seen to bite) and the public surface of the library.
if(NOT KVARVE_TESTS)
  return()
endif()
find_package(Python3 3.11 REQUIRED COMPONENTS Interpreter)

foreach(checker headers layers style symbols)
  add_test(NAME unit.tools.check_${checker}
    COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_SOURCE_DIR}/tests/unit/tools/test_check_${checker}.py
    WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  set_tests_properties(unit.tools.check_${checker} PROPERTIES LABELS unit TIMEOUT 60)
endforeach()
