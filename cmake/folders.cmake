# The three kinds of target: a folder of src, a test, a fuzzer.

# kvarve_folder(NAME SOURCES a.c b.c [LINKS target...]): src/NAME as one OBJECT library, kvarve_NAME.
# What a folder may include is checked by tools/check_layers.py.
set(KVARVE_FOLDERS "" CACHE INTERNAL "")

function(kvarve_folder name)
  cmake_parse_arguments(arg "" "" "SOURCES;LINKS" ${ARGN})
  add_library(kvarve_${name} OBJECT ${arg_SOURCES})
  target_link_libraries(kvarve_${name} PUBLIC kvarve_flags ${arg_LINKS} Threads::Threads)
  set(KVARVE_FOLDERS ${KVARVE_FOLDERS} ${name} CACHE INTERNAL "")
endfunction()

# kvarve_use(TARGET folder...): link these folders' objects into TARGET, with what they link. With api come
# the folders of its second door.
function(kvarve_use target)
  set(folders ${ARGN})
  if(api IN_LIST folders)
    list(APPEND folders protocol client)
    list(REMOVE_DUPLICATES folders)
  endif()
  target_link_libraries(${target} PRIVATE kvarve_flags Threads::Threads)
  foreach(folder ${folders})
    target_link_libraries(${target} PRIVATE kvarve_${folder})
  endforeach()
endfunction()

# A command that every test program is run under, as a list; the memcheck preset sets valgrind.
set(KVARVE_TEST_WRAPPER "" CACHE STRING "Command put before each test program")

# What each run of a test gets to know; findings of a sanitizer fail the test with a stack trace.
set(KVARVE_TEST_ENVIRONMENT
  "ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1:detect_stack_use_after_return=1:allow_addr2line=1"
  "UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1:allow_addr2line=1"
  "TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:allow_addr2line=1"
  "CMOCKA_MESSAGE_OUTPUT=STDOUT")

# kvarve_test(LABEL.FOLDER.NAME SOURCES test_name.c USES folder... [LABELS extra...] [TIMEOUT s]): one cmocka
# executable and one CTest of that name, with LABEL as its label. Headers of tests/ are on the path; what
# tests/support defines in .c files is named in SOURCES.
function(kvarve_test name)
  cmake_parse_arguments(arg "" "TIMEOUT" "SOURCES;USES;LABELS" ${ARGN})
  string(REPLACE "." "_" target "test_${name}")
  string(REGEX MATCH "^[^.]+" label ${name})
  add_executable(${target} ${arg_SOURCES} ${CMAKE_SOURCE_DIR}/tests/support/filter.c)
  kvarve_use(${target} ${arg_USES})
  target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR}/tests)
  target_link_libraries(${target} PRIVATE PkgConfig::CMOCKA)
  add_test(NAME ${name} COMMAND ${KVARVE_TEST_WRAPPER} $<TARGET_FILE:${target}>
           WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  set_tests_properties(${name} PROPERTIES
    LABELS "${label};${arg_LABELS}" TIMEOUT ${arg_TIMEOUT} ENVIRONMENT "${KVARVE_TEST_ENVIRONMENT}")
endfunction()

# kvarve_fuzz(NAME USES folder... [SOURCES more.c...]): fuzz/fuzz_NAME.c as an executable. With KVARVE_FUZZ it
# is a libFuzzer program; else fuzz/driver.c gives it a main that runs the files it is given. Either way CTest
# fuzz.NAME runs it once over every file of fuzz/corpus/NAME.
function(kvarve_fuzz name)
  cmake_parse_arguments(arg "" "" "SOURCES;USES" ${ARGN})
  set(target fuzz_${name})
  set(corpus ${CMAKE_SOURCE_DIR}/fuzz/corpus/${name})
  add_executable(${target} ${CMAKE_SOURCE_DIR}/fuzz/fuzz_${name}.c ${arg_SOURCES})
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/fuzz)
  kvarve_use(${target} ${arg_USES})
  if(KVARVE_FUZZ)
    target_link_options(${target} PRIVATE -fsanitize=fuzzer)
    set(once -runs=0)
  else()
    target_sources(${target} PRIVATE ${CMAKE_SOURCE_DIR}/fuzz/driver.c)
    set(once)
  endif()
  add_test(NAME fuzz.${name} COMMAND ${KVARVE_TEST_WRAPPER} $<TARGET_FILE:${target}> ${once} ${corpus})
  set_tests_properties(fuzz.${name} PROPERTIES
    LABELS fuzz TIMEOUT 300 ENVIRONMENT "${KVARVE_TEST_ENVIRONMENT}")
endfunction()
