// LevelDB on a volume of SiftFS.

#ifndef SIFTFS_INTEGRATIONS_LEVELDB_ENV_H
#define SIFTFS_INTEGRATIONS_LEVELDB_ENV_H

#include <leveldb/env.h>

#include <string>

#include "../common/volume.h"

namespace siftfs {

// Opens the volume at `address` and gives an Env whose paths are those in the volume. Threads, time
// and sleep are those of `base`, which must outlive it. The Env belongs to the caller, who deletes
// it after the last database and file; the volume is closed then, and plain ext4.
leveldb::Status NewEnv(const std::string& address, Ops ops, leveldb::Env* base,
                       leveldb::Env** into);

// The Env that a program finds as its default where the environment has SIFTFS_VOLUME=ADDRESS, and
// perhaps SIFTFS_OPS=single; null where it has not. It ends the program if the volume cannot be
// opened, as LevelDB has no way to say so. At the program's end the volume is closed, or, if files
// are open then, everything is made durable.
leveldb::Env* EnvOfEnvironment(leveldb::Env* base);

}  // namespace siftfs

#endif
