#include "siftfs_fs.h"

#include <rocksdb/env.h>
#include <rocksdb/utilities/object_registry.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "files.h"

namespace siftfs {

namespace {

using rocksdb::FileOptions;
using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;

class Lock : public rocksdb::FileLock {
 public:
  explicit Lock(std::string name) : name_(std::move(name)) {}
  const std::string name_;
};

class FileSystem : public rocksdb::FileSystem {
 public:
  explicit FileSystem(std::shared_ptr<Volume> volume) : volume_(std::move(volume)) {}

  const char* Name() const override { return "siftfs"; }

  IOStatus NewSequentialFile(const std::string& name, const FileOptions&,
                             std::unique_ptr<rocksdb::FSSequentialFile>* into,
                             IODebugContext*) override {
    std::unique_ptr<Reader> in;
    int error = Reader::Open(*volume_, name, &in);
    into->reset(error == 0 ? new SequentialFile(name, std::move(in)) : nullptr);
    return Said(name, error);
  }

  IOStatus NewRandomAccessFile(const std::string& name, const FileOptions&,
                               std::unique_ptr<rocksdb::FSRandomAccessFile>* into,
                               IODebugContext*) override {
    std::unique_ptr<File> file;
    int error = volume_->OpenFile(name, &file);
    into->reset(error == 0 ? new RandomAccessFile(name, std::move(file)) : nullptr);
    return Said(name, error);
  }

  IOStatus NewWritableFile(const std::string& name, const FileOptions& options,
                           std::unique_ptr<rocksdb::FSWritableFile>* into,
                           IODebugContext*) override {
    std::unique_ptr<File> file;
    int error = volume_->CreateFile(name, &file);
    return Writable(name, options, error, std::move(file), 0, into);
  }

  IOStatus ReopenWritableFile(const std::string& name, const FileOptions& options,
                              std::unique_ptr<rocksdb::FSWritableFile>* into,
                              IODebugContext*) override {
    std::unique_ptr<File> file;
    uint64_t size = 0;
    int error = volume_->OpenOrCreate(name, &file);
    if (error == 0) error = file->Size(&size);
    return Writable(name, options, error, std::move(file), size, into);
  }

  // An old log under a new name, written over from its front: a sync then changes no size.
  IOStatus ReuseWritableFile(const std::string& name, const std::string& old_name,
                             const FileOptions& options,
                             std::unique_ptr<rocksdb::FSWritableFile>* into,
                             IODebugContext*) override {
    std::unique_ptr<File> file;
    int error = volume_->Rename(old_name, name);
    if (error == 0) error = volume_->OpenFile(name, &file);
    return Writable(name, options, error, std::move(file), 0, into);
  }

  IOStatus NewRandomRWFile(const std::string& name, const FileOptions&,
                           std::unique_ptr<rocksdb::FSRandomRWFile>* into,
                           IODebugContext*) override {
    std::unique_ptr<File> file;
    int error = volume_->OpenFile(name, &file);
    into->reset(error == 0 ? new RandomRWFile(name, std::move(file)) : nullptr);
    return Said(name, error);
  }

  IOStatus NewDirectory(const std::string& name, const IOOptions&,
                        std::unique_ptr<rocksdb::FSDirectory>* into, IODebugContext*) override {
    bool directory = false;
    int error = IsDir(name, &directory);
    if (error == 0 && !directory) error = ENOTDIR;
    into->reset(error == 0 ? new Directory(name, volume_) : nullptr);
    return Said(name, error);
  }

  IOStatus FileExists(const std::string& name, const IOOptions&, IODebugContext*) override {
    struct stat stat;
    int error = volume_->Stat(name, &stat);
    return error == ENOENT || error == ENOTDIR ? IOStatus::NotFound() : Said(name, error);
  }

  IOStatus GetChildren(const std::string& dir, const IOOptions&, std::vector<std::string>* result,
                       IODebugContext*) override {
    result->clear();
    int error = volume_->List(dir, [&](const char* name) { result->push_back(name); });
    return error == ENOENT || error == ENOTDIR ? IOStatus::NotFound(dir, std::strerror(error))
                                               : Said(dir, error);
  }

  IOStatus DeleteFile(const std::string& name, const IOOptions&, IODebugContext*) override {
    return Said(name, volume_->RemoveFile(name));
  }

  IOStatus Truncate(const std::string& name, size_t size, const IOOptions&,
                    IODebugContext*) override {
    std::unique_ptr<File> file;
    int error = volume_->OpenFile(name, &file);
    return Said(name, error != 0 ? error : file->Truncate(size));
  }

  IOStatus CreateDir(const std::string& name, const IOOptions&, IODebugContext*) override {
    return Said(name, volume_->MakeDir(name));
  }

  IOStatus CreateDirIfMissing(const std::string& name, const IOOptions&,
                              IODebugContext*) override {
    int error = volume_->MakeDir(name);
    bool directory = false;
    if (error == EEXIST && IsDir(name, &directory) == 0 && directory) error = 0;
    return Said(name, error);
  }

  IOStatus DeleteDir(const std::string& name, const IOOptions&, IODebugContext*) override {
    return Said(name, volume_->RemoveDir(name));
  }

  IOStatus GetFileSize(const std::string& name, const IOOptions&, uint64_t* size,
                       IODebugContext*) override {
    struct stat stat;
    int error = volume_->Stat(name, &stat);
    *size = error == 0 ? static_cast<uint64_t>(stat.st_size) : 0;
    return Said(name, error);
  }

  IOStatus GetFileModificationTime(const std::string& name, const IOOptions&, uint64_t* seconds,
                                   IODebugContext*) override {
    struct stat stat;
    int error = volume_->Stat(name, &stat);
    *seconds = error == 0 ? static_cast<uint64_t>(stat.st_mtime) : 0;
    return Said(name, error);
  }

  IOStatus RenameFile(const std::string& from, const std::string& to, const IOOptions&,
                      IODebugContext*) override {
    return Said(from, volume_->Rename(from, to));
  }

  IOStatus LinkFile(const std::string& existing, const std::string& to, const IOOptions&,
                    IODebugContext*) override {
    return Said(existing, volume_->Link(existing, to));
  }

  IOStatus NumFileLinks(const std::string& name, const IOOptions&, uint64_t* count,
                        IODebugContext*) override {
    struct stat stat;
    int error = volume_->Stat(name, &stat);
    *count = error == 0 ? stat.st_nlink : 0;
    return Said(name, error);
  }

  IOStatus AreFilesSame(const std::string& first, const std::string& second, const IOOptions&,
                        bool* same, IODebugContext*) override {
    struct stat one, other;
    int error = volume_->Stat(first, &one);
    if (error == 0) error = volume_->Stat(second, &other);
    *same = error == 0 && one.st_ino == other.st_ino;
    return Said(first, error);
  }

  IOStatus LockFile(const std::string& name, const IOOptions&, rocksdb::FileLock** lock,
                    IODebugContext*) override {
    int error = volume_->Lock(name);
    *lock = error == 0 ? new Lock(name) : nullptr;
    if (error == EAGAIN) return IOStatus::IOError("lock " + name, "already held by process");
    return Said("lock " + name, error);
  }

  IOStatus UnlockFile(rocksdb::FileLock* lock, const IOOptions&, IODebugContext*) override {
    std::unique_ptr<Lock> held(static_cast<Lock*>(lock));
    volume_->Unlock(held->name_);
    return IOStatus::OK();
  }

  IOStatus GetTestDirectory(const IOOptions&, std::string* path, IODebugContext*) override {
    const char* chosen = std::getenv("TEST_TMPDIR");
    *path = chosen != nullptr && *chosen != 0 ? chosen : "/tmp/rocksdbtest";
    return Said(*path, volume_->MakeDirs(*path));
  }

  IOStatus NewLogger(const std::string& name, const IOOptions&,
                     std::shared_ptr<rocksdb::Logger>* into, IODebugContext*) override {
    std::unique_ptr<File> file;
    int error = volume_->CreateFile(name, &file);
    into->reset(error == 0 ? new Logger(std::move(file)) : nullptr);
    return Said(name, error);
  }

  IOStatus GetAbsolutePath(const std::string& path, const IOOptions&, std::string* absolute,
                           IODebugContext*) override {
    *absolute = CleanPath(path);
    return IOStatus::OK();
  }

  IOStatus IsDirectory(const std::string& path, const IOOptions&, bool* directory,
                       IODebugContext*) override {
    return Said(path, IsDir(path, directory));
  }

 private:
  int IsDir(const std::string& path, bool* directory) {
    struct stat stat;
    int error = volume_->Stat(path, &stat);
    *directory = error == 0 && S_ISDIR(stat.st_mode);
    return error;
  }

  IOStatus Writable(const std::string& name, const FileOptions& options, int error,
                    std::unique_ptr<File> file, uint64_t size,
                    std::unique_ptr<rocksdb::FSWritableFile>* into) {
    into->reset(error == 0 ? new WritableFile(name, std::move(file), size, options) : nullptr);
    return Said(name, error);
  }

  const std::shared_ptr<Volume> volume_;
};

// The file system that a URI names; null and why not.
std::unique_ptr<rocksdb::FileSystem> OfUri(const std::string& uri, std::string* error) {
  const char* word = std::getenv("SIFTFS_OPS");
  Ops ops = Ops::kCompound;
  if (word != nullptr && !ParseOps(word, &ops)) {
    *error = "SIFTFS_OPS is neither compound nor single";
    return nullptr;
  }
  std::shared_ptr<Volume> volume;
  int failed = Volume::Open(uri.substr(std::strlen("siftfs://")), ops, &volume);
  if (failed != 0) {
    *error = Said(uri, failed).ToString();
    return nullptr;
  }
  return std::unique_ptr<rocksdb::FileSystem>(new FileSystem(std::move(volume)));
}

// What RocksDB finds by names, from the moment that this library is loaded.
const bool registered = [] {
  auto library = rocksdb::ObjectLibrary::Default();
  auto named = rocksdb::ObjectLibrary::PatternEntry("siftfs", false).AddSeparator("://");
  library->AddFactory<rocksdb::FileSystem>(
      named, [](const std::string& uri, std::unique_ptr<rocksdb::FileSystem>* guard,
                std::string* error) {
        *guard = OfUri(uri, error);
        return guard->get();
      });
  library->AddFactory<rocksdb::Env>(named, [](const std::string& uri,
                                              std::unique_ptr<rocksdb::Env>* guard,
                                              std::string* error) {
    std::shared_ptr<rocksdb::FileSystem> made = OfUri(uri, error);
    if (made != nullptr) *guard = rocksdb::NewCompositeEnv(made);
    return guard->get();
  });
  return true;
}();

}  // namespace

IOStatus NewFileSystem(const std::string& address, Ops ops,
                       std::shared_ptr<rocksdb::FileSystem>* into) {
  std::shared_ptr<Volume> volume;
  int error = Volume::Open(address, ops, &volume);
  into->reset(error == 0 ? new FileSystem(std::move(volume)) : nullptr);
  return Said(address, error);
}

}  // namespace siftfs
