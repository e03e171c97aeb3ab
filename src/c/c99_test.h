/* What the parts of the program in C share. */
#ifndef OCTAVO_C99_TEST_H
#define OCTAVO_C99_TEST_H

#include <octavo/octavo.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern int failures;
extern octavo_stream* cpu;

#define CHECK(condition)                                                            \
  do {                                                                              \
    if (!(condition)) {                                                             \
      ++failures;                                                                   \
      printf("%s:%d: not so: %s; last error: %s\n", __FILE__, __LINE__, #condition, \
             octavo_last_error()->message);                                         \
    }                                                                               \
  } while (0)

enum { rows = 2, cols = 4, count = rows * cols };
extern const int64_t shape[2];

void test_linear(void);
void test_groups(void);
void test_packed_weight(void);

#endif
