# The library users link: shared and static, made of the folders below it, with what pkg-config and CMake
# need to find it. Both export exactly the KVARVE_API symbols; tools/check_symbols.py compares them with
# tools/symbols.txt.
include(cmake/checks.cmake)
if(NOT TARGET kvarve_api)
  return()
endif()
include(CMakePackageConfigHelpers)

set(library_folders base hash env format key arena segment index store protocol transfer embedded client api)
set(library_packages PkgConfig::CRYPTO PkgConfig::XXHASH PkgConfig::SQLITE PkgConfig::JANSSON)
set(library_objects)
foreach(folder ${library_folders})
  list(APPEND library_objects $<TARGET_OBJECTS:kvarve_${folder}>)
endforeach()

add_library(kvarve_shared SHARED ${library_objects})
target_link_libraries(kvarve_shared PRIVATE ${library_packages} Threads::Threads)
set_target_properties(kvarve_shared PROPERTIES
  VERSION ${PROJECT_VERSION} SOVERSION 0 EXPORT_NAME kvarve)
if(NOT KVARVE_SANITIZE)
  target_link_options(kvarve_shared PRIVATE -Wl,--no-undefined -Wl,--as-needed)
endif()

# -fvisibility=hidden hides a symbol from other shared objects, but not from a program that links an archive
# of these objects: names such as mutex_lock would meet the program's own. So the archive holds one object,
# linked from all of them, in which hidden symbols are made local. Sanitizers register each object's globals
# and do not survive that; there the archive holds the plain objects.
if(KVARVE_SANITIZE)
  add_library(kvarve_static STATIC ${library_objects})
else()
  set(one_object ${CMAKE_BINARY_DIR}/kvarve_static.o)
  add_custom_command(
    OUTPUT ${one_object}
    COMMAND ${CMAKE_LINKER} -r -o ${one_object} ${library_objects}
    COMMAND ${CMAKE_OBJCOPY} --localize-hidden ${one_object}
    DEPENDS ${library_objects}
    COMMAND_EXPAND_LISTS VERBATIM
    COMMENT "Linking kvarve_static.o, hidden symbols made local")
  add_library(kvarve_static STATIC ${one_object})
endif()
target_link_libraries(kvarve_static PRIVATE ${library_packages} Threads::Threads)
set_target_properties(kvarve_static PROPERTIES EXPORT_NAME static)

foreach(library kvarve_shared kvarve_static)
  set_target_properties(${library} PROPERTIES OUTPUT_NAME kvarve LINKER_LANGUAGE C)
  target_include_directories(${library} INTERFACE
    $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
endforeach()
add_library(kvarve::kvarve ALIAS kvarve_shared)
add_library(kvarve::static ALIAS kvarve_static)

# Installation. Files find each other by relative paths, so that an installed tree can be moved and
# cmake --install --prefix works.
install(DIRECTORY include/kvarve DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(TARGETS kvarve_shared kvarve_static EXPORT kvarveTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/kvarve)
install(EXPORT kvarveTargets NAMESPACE kvarve:: DESTINATION ${package_dir})
configure_package_config_file(cmake/kvarveConfig.cmake.in ${CMAKE_BINARY_DIR}/kvarveConfig.cmake
  INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/kvarveConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/kvarveConfig.cmake ${CMAKE_BINARY_DIR}/kvarveConfigVersion.cmake
  DESTINATION ${package_dir})

file(RELATIVE_PATH pc_prefix "/prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/prefix")
configure_file(cmake/kvarve.pc.in ${CMAKE_BINARY_DIR}/kvarve.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/kvarve.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

if(KVARVE_TESTS AND NOT KVARVE_SANITIZE)
  add_test(NAME process.install COMMAND ${CMAKE_SOURCE_DIR}/tools/check_install.sh
    ${CMAKE_COMMAND} ${CMAKE_BINARY_DIR} ${CMAKE_C_COMPILER} ${CMAKE_CXX_COMPILER} ${CMAKE_INSTALL_LIBDIR})
  set_tests_properties(process.install PROPERTIES LABELS process TIMEOUT 300)
endif()
