# Installs the library, its headers and the package that find_package(octavo) reads.

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/octavo)

install(TARGETS octavo EXPORT octavo-targets INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/octavo DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT octavo-targets NAMESPACE octavo:: DESTINATION ${package_dir})

configure_package_config_file(
  ${CMAKE_CURRENT_LIST_DIR}/octavo-config.cmake.in ${PROJECT_BINARY_DIR}/octavo-config.cmake
  INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(
  ${PROJECT_BINARY_DIR}/octavo-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES
  ${PROJECT_BINARY_DIR}/octavo-config.cmake ${PROJECT_BINARY_DIR}/octavo-config-version.cmake
  DESTINATION ${package_dir})
