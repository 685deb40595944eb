# Compiler flags, for every target of the project. The list of warnings and of hardening is the project's
# rule (CONTRIBUTING.md); a target adds nothing of its own.
include(CheckCCompilerFlag)
include(CheckPIESupported)
check_pie_supported(LANGUAGES C CXX)

# Not under a sanitizer, which brings its own checks.
option(KVARVE_HARDEN "Hardening: fortified C library calls, stack protection, read-only relocations" ON)

add_library(kvarve_flags INTERFACE)
target_compile_definitions(kvarve_flags INTERFACE _GNU_SOURCE)
target_include_directories(kvarve_flags INTERFACE ${CMAKE_SOURCE_DIR}/include ${CMAKE_SOURCE_DIR}/src)

set(warnings
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion -Wstrict-prototypes
  -Wmissing-prototypes -Wold-style-definition -Wundef -Wvla -Wcast-qual -Wcast-align -Wwrite-strings
  -Wformat=2 -Wnull-dereference -Wdouble-promotion -Wswitch-enum -Wimplicit-fallthrough
  -Wpointer-arith)
if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
  list(APPEND warnings
    -Wduplicated-cond -Wduplicated-branches -Wlogical-op -Warith-conversion -Wjump-misses-init
    -Wformat-overflow=2 -Wformat-truncation=2)
endif()
add_compile_options("$<$<COMPILE_LANGUAGE:C>:${warnings}>" -fno-common -fvisibility=hidden)
# Links and requests are reached through pointers to their first members and back; gcc 12 took a list's
# head for not changed by what moves its items, and a loop over it had no end.
add_compile_options(-fno-strict-aliasing)
if(KVARVE_WERROR)
  add_compile_options(-Werror)
endif()
if(KVARVE_CHECKED)
  add_compile_definitions(KVARVE_CHECKED=1)
endif()

if(KVARVE_SANITIZE)
  add_compile_options(-fsanitize=${KVARVE_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${KVARVE_SANITIZE})
elseif(KVARVE_HARDEN)
  add_compile_options(-fstack-protector-strong -fstack-clash-protection)
  check_c_compiler_flag(-fcf-protection has_cf_protection)
  if(has_cf_protection)
    add_compile_options(-fcf-protection)
  endif()
  if(NOT CMAKE_BUILD_TYPE STREQUAL "Debug")
    add_compile_options(-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3)
  endif()
  add_link_options(-Wl,-z,relro,-z,now)
endif()
