// Takes the place of LevelDB's default Env, in a program that has this library before LevelDB's
// (by LD_PRELOAD, or by the order of its libraries), and SIFTFS_VOLUME in its environment.

#include <dlfcn.h>
#include <leveldb/env.h>

#include <cstdio>
#include <cstdlib>

#include "siftfs_env.h"

namespace leveldb {

Env* Env::Default() {
  static Env* const one = [] {
    // The one that LevelDB's own library has.
    void* next = dlsym(RTLD_NEXT, "_ZN7leveldb3Env7DefaultEv");
    if (next == nullptr) {
      std::fprintf(stderr, "siftfs: no shared library of LevelDB behind this one\n");
      std::exit(1);
    }
    Env* base = reinterpret_cast<Env* (*)()>(next)();
    Env* ours = siftfs::EnvOfEnvironment(base);
    return ours != nullptr ? ours : base;
  }();
  return one;
}

}  // namespace leveldb
