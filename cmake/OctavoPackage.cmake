# The Debian package, by `cpack -G DEB`; `./dev package` builds and checks it.

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME octavo)
set(CPACK_PACKAGE_VENDOR "Octavo")
# Whoever builds a package maintains it, and says so as for any other Debian package.
set(maintainer "built from source <root@localhost>")
if(DEFINED ENV{DEBEMAIL})
  set(maintainer "$ENV{DEBEMAIL}")
  if(DEFINED ENV{DEBFULLNAME})
    set(maintainer "$ENV{DEBFULLNAME} <$ENV{DEBEMAIL}>")
  endif()
endif()
set(CPACK_PACKAGE_CONTACT "${maintainer}")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY ${PROJECT_DESCRIPTION})
set(CPACK_PACKAGE_DESCRIPTION
  "Turns the numbers of neural networks into 8-bit and 4-bit integers and back,
for inference and for training, from C and C++. Every result is defined to the
last bit, and it is the same on every CPU and for any number of threads. The
command octavo quantizes checkpoints of language models.")
set(CPACK_STRIP_FILES ON)

set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION libdevel)
# What the shared library needs is found by dpkg-shlibdeps; what the static one needs, by nobody.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "libfmt-dev, libhwy-dev, libre2-dev, libtbb-dev")
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY "=")

include(CPack)
