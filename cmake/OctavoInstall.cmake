# Installs both libraries, the headers, and what find_package(octavo) and pkg-config read. Nothing
# installed names the prefix, so the tree may be moved.

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/octavo)

# Apart, since only a user of the static library needs what it depends on.
foreach(kind IN ITEMS shared static)
  install(TARGETS octavo_${kind} EXPORT octavo-${kind}-targets
    INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  install(EXPORT octavo-${kind}-targets NAMESPACE octavo:: DESTINATION ${package_dir})
endforeach()
# On top of the static library; and the command.
install(TARGETS octavo_offline EXPORT octavo-offline-targets
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT octavo-offline-targets NAMESPACE octavo:: DESTINATION ${package_dir})
if(TARGET octavo_cli)
  install(TARGETS octavo_cli)
endif()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/octavo DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})

configure_package_config_file(
  ${CMAKE_CURRENT_LIST_DIR}/octavo-config.cmake.in ${PROJECT_BINARY_DIR}/octavo-config.cmake
  INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(
  ${PROJECT_BINARY_DIR}/octavo-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES
  ${PROJECT_BINARY_DIR}/octavo-config.cmake ${PROJECT_BINARY_DIR}/octavo-config-version.cmake
  ${CMAKE_CURRENT_LIST_DIR}/octavo-re2.cmake
  DESTINATION ${package_dir})

file(RELATIVE_PATH pkgconfig_to_prefix
  ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
# As plain libraries: with Requires.private, pkg-config would want their .pc files for the shared one.
set(pkgconfig_threads "-ltbb")
if(OCTAVO_STD_THREADS)
  set(pkgconfig_threads "")
endif()
configure_file(${CMAKE_CURRENT_LIST_DIR}/octavo.pc.in ${PROJECT_BINARY_DIR}/octavo.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/octavo.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME copyright)
