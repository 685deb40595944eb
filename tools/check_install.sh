#!/bin/sh
# check_install.sh - install the built library into a prefix of its own, and use it as a stranger.
#
# Usage: tools/check_install.sh CMAKE BUILD_FOLDER CC CXX LIBDIR
#
# A C and a C++17 program, each through pkg-config and through find_package, shared and static, from
# a prefix that was moved after the installation. CTest runs it as process.install.
set -eu

cmake=$1 build=$2 cc=$3 cxx=$4 libdir=$5
here=$build/install-test
rm -rf "$here"
mkdir -p "$here/program"
"$cmake" --install "$build" --prefix "$here/first" >"$here/install.log"
mv "$here/first" "$here/prefix"
prefix=$here/prefix
library=$prefix/$libdir
[ -f "$library/libkvarve.so.0" ]
[ -f "$library/libkvarve.a" ]

cat >"$here/program/main.c" <<'END'
#include <stdio.h>
#include <string.h>

#include "kvarve/error.h"
#include "kvarve/prefix.h"

int main(void)
{
    kvarve_prefix *prefix = NULL;

    if (kvarve_prefix_create(&prefix, NULL) != KVARVE_OK || kvarve_prefix_length(prefix) != 0) {
        return 1;
    }
    kvarve_prefix_free(prefix);
    puts(kvarve_status_text(KVARVE_OK));
    return strcmp(kvarve_status_text(KVARVE_OK), "success") != 0;
}
END
cp "$here/program/main.c" "$here/program/main.cpp"

tried=0
run() {
    LD_LIBRARY_PATH=$library "$1" >"$1.out"
    [ "$(cat "$1.out")" = success ]
    tried=$((tried + 1))
}

# Through pkg-config. The static form names the archive, since a linker prefers a shared library.
PKG_CONFIG_PATH=$library/pkgconfig
export PKG_CONFIG_PATH
cflags=$(pkg-config --cflags kvarve)
shared=$(pkg-config --libs kvarve)
static=$(pkg-config --static --libs kvarve | sed 's/-lkvarve/-l:libkvarve.a/')
# shellcheck disable=SC2086
for form in shared static; do
    eval "libs=\$$form"
    "$cc" -std=c17 -Wall -Wextra -Werror $cflags \
        "$here/program/main.c" -o "$here/c-$form" $libs
    run "$here/c-$form"
    "$cxx" -std=c++17 -Wall -Wextra -Werror $cflags \
        "$here/program/main.cpp" -o "$here/cxx-$form" $libs
    run "$here/cxx-$form"
done
if ldd "$here/c-static" | grep -q libkvarve; then
    echo "the static program needs libkvarve.so" >&2
    exit 1
fi
unset PKG_CONFIG_PATH

# Through find_package.
cat >"$here/program/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.25)
project(stranger LANGUAGES C CXX)
set(CMAKE_C_STANDARD 17)
set(CMAKE_CXX_STANDARD 17)
find_package(kvarve 0.1 REQUIRED)
foreach(language c cpp)
  add_executable(${language}-shared main.${language})
  target_link_libraries(${language}-shared PRIVATE kvarve::kvarve)
  add_executable(${language}-static main.${language})
  target_link_libraries(${language}-static PRIVATE kvarve::static)
endforeach()
END
"$cmake" -S "$here/program" -B "$here/stranger" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" \
    -DCMAKE_C_COMPILER="$cc" -DCMAKE_CXX_COMPILER="$cxx" >"$here/stranger.log"
"$cmake" --build "$here/stranger" >>"$here/stranger.log"
for program in c-shared c-static cpp-shared cpp-static; do
    run "$here/stranger/$program"
done

rm -rf "$here"
echo "check_install: $tried programs built and run"
