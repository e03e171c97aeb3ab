/* What the shared library shows: everything else is compiled with -fvisibility=hidden. */
#ifndef OCTAVO_EXPORT_H
#define OCTAVO_EXPORT_H

#define OCTAVO_API __attribute__((visibility("default")))

#endif
