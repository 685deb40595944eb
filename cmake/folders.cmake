# kvarve_folder(NAME SOURCES a.c b.c [LINKS target...]): src/NAME as one OBJECT library, kvarve_NAME.
# What a folder may include is checked by tools/check_layers.py.
set(KVARVE_FOLDERS "" CACHE INTERNAL "")

function(kvarve_folder name)
  cmake_parse_arguments(arg "" "" "SOURCES;LINKS" ${ARGN})
  add_library(kvarve_${name} OBJECT ${arg_SOURCES})
  target_link_libraries(kvarve_${name} PUBLIC kvarve_flags ${arg_LINKS} Threads::Threads)
  set(KVARVE_FOLDERS ${KVARVE_FOLDERS} ${name} CACHE INTERNAL "")
endfunction()

# kvarve_use(TARGET folder...): link these folders' objects into TARGET, with what they link.
function(kvarve_use target)
  target_link_libraries(${target} PRIVATE kvarve_flags Threads::Threads)
  foreach(folder ${ARGN})
    target_link_libraries(${target} PRIVATE kvarve_${folder})
  endforeach()
endfunction()

# kvarve_test(LABEL.FOLDER.NAME SOURCES test_name.c USES folder... [LABELS extra...] [TIMEOUT s]): one cmocka
# executable and one CTest of that name, with LABEL as its label. tests/support is always linked.
function(kvarve_test name)
  cmake_parse_arguments(arg "" "TIMEOUT" "SOURCES;USES;LABELS" ${ARGN})
  string(REPLACE "." "_" target "test_${name}")
  string(REGEX MATCH "^[^.]+" label ${name})
  add_executable(${target} ${arg_SOURCES})
  kvarve_use(${target} ${arg_USES})
  target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR}/tests)
  target_link_libraries(${target} PRIVATE PkgConfig::CMOCKA)
  add_test(NAME ${name} COMMAND ${target} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  set_tests_properties(${name} PROPERTIES LABELS "${label};${arg_LABELS}" TIMEOUT ${arg_TIMEOUT})
endfunction()
