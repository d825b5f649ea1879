// What the programs of the tests put: numbers, and what belongs to them.

#ifndef SIFTFS_INTEGRATIONS_TESTS_NUMBERS_H
#define SIFTFS_INTEGRATIONS_TESTS_NUMBERS_H

#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>

[[noreturn]] inline void Fail(const std::string& why) {
  std::fprintf(stderr, "failed: %s\n", why.c_str());
  std::exit(1);
}

template <typename Status>
void Must(const Status& status, const std::string& what) {
  if (!status.ok()) Fail(what + ": " + status.ToString());
}

// Keys sort as their numbers do.
inline std::string Key(uint64_t number) {
  char key[24];
  std::snprintf(key, sizeof key, "%016llu", static_cast<unsigned long long>(number));
  return key;
}

// What belongs to a number: of any length, now and then of more than a block of a log.
inline std::string Value(uint64_t number) {
  std::mt19937_64 random(number);
  size_t length = random() % 20 == 0 ? random() % 80000 : random() % 3000;
  std::string value(length, 0);
  for (char& byte : value) byte = static_cast<char>(random());
  return value;
}

// Durable puts of numbers, for ever; each is written to the pipe once it is acknowledged.
template <typename DB, typename Options>
void PutAll(DB& db, const Options& durable, uint64_t first) {
  for (uint64_t number = first;; number++) {
    Must(db.Put(durable, Key(number), Value(number)), "put");
    if (write(STDOUT_FILENO, &number, sizeof number) != sizeof number) Fail("nothing reads");
  }
}

// The first `count` numbers are in the database, one more at most, and nothing else.
template <typename Iterator>
void CheckAll(Iterator& all, uint64_t count) {
  uint64_t found = 0;
  for (all.SeekToFirst(); all.Valid(); all.Next(), found++) {
    if (all.key().ToString() != Key(found)) Fail("number " + Key(found) + " is not there");
    if (all.value().ToString() != Value(found)) Fail("number " + Key(found) + " has another value");
  }
  Must(all.status(), "iterate");
  if (found < count) Fail("an acknowledged put is gone: " + Key(found) + " of " + Key(count));
  if (found > count + 1) Fail("there is more than was put: " + Key(found) + " of " + Key(count));
  std::printf("%llu\n", static_cast<unsigned long long>(found));
}

#endif
