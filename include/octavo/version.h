/* The version of these headers, in C and C++. `octavo_version()` is that of the library. */
#ifndef OCTAVO_VERSION_H
#define OCTAVO_VERSION_H

#define OCTAVO_VERSION_MAJOR 0
#define OCTAVO_VERSION_MINOR 1
#define OCTAVO_VERSION_PATCH 0

/* 10203 is 1.2.3 */
#define OCTAVO_VERSION \
  (OCTAVO_VERSION_MAJOR * 10000 + OCTAVO_VERSION_MINOR * 100 + OCTAVO_VERSION_PATCH)

#endif
