#include "siftfs_env.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "../common/stream.h"
#include "record_file.h"

namespace siftfs {

namespace {

using leveldb::Slice;
using leveldb::Status;

// As much as LevelDB's own Env keeps back.
constexpr size_t kBuffer = 65536;

Status Said(const std::string& context, int error) {
  if (error == 0) return Status::OK();
  if (error == ENOENT) return Status::NotFound(context, std::strerror(error));
  return Status::IOError(context, std::strerror(error));
}

class SequentialFile : public leveldb::SequentialFile {
 public:
  SequentialFile(std::string name, std::unique_ptr<Reader> in)
      : name_(std::move(name)), in_(std::move(in)) {}

  Status Read(size_t n, Slice* result, char* scratch) override {
    size_t count = 0;
    int error = in_->Read(n, scratch, &count);
    *result = Slice(scratch, count);
    return Said(name_, error);
  }

  Status Skip(uint64_t n) override {
    in_->Skip(n);
    return Status::OK();
  }

 private:
  const std::string name_;
  const std::unique_ptr<Reader> in_;
};

class RandomAccessFile : public leveldb::RandomAccessFile {
 public:
  RandomAccessFile(std::string name, std::unique_ptr<File> file)
      : name_(std::move(name)), file_(std::move(file)) {}

  Status Read(uint64_t offset, size_t n, Slice* result, char* scratch) const override {
    size_t count = 0;
    int error = file_->Read(offset, n, scratch, &count);
    *result = Slice(scratch, count);
    return Said(name_, error);
  }

 private:
  const std::string name_;
  const std::unique_ptr<File> file_;
};

class WritableFile : public RecordFile {
 public:
  WritableFile(std::string name, std::unique_ptr<File> file, uint64_t size)
      : name_(std::move(name)), out_(std::move(file), size, kBuffer) {}

  Status Append(const Slice& data) override {
    return Said(name_, out_.Append(data.data(), data.size()));
  }
  bool TakesRecords() const override { return out_.ComputesChecksums(); }
  Status AppendRecord(char type, const Slice& payload) override {
    return Said(name_, out_.AppendRecord(type, payload.data(), payload.size()));
  }
  Status Flush() override { return Said(name_, out_.Flush()); }
  Status Sync() override { return Said(name_, out_.Sync()); }
  Status Close() override { return Said(name_, out_.Close()); }

 private:
  const std::string name_;
  Appender out_;
};

class Logger : public leveldb::Logger {
 public:
  explicit Logger(std::unique_ptr<File> file) : out_(std::move(file)) {}
  void Logv(const char* format, std::va_list values) override { out_.Write(format, values); }

 private:
  LineLog out_;
};

class Lock : public leveldb::FileLock {
 public:
  explicit Lock(std::string name) : name_(std::move(name)) {}
  const std::string name_;
};

class Env : public leveldb::EnvWrapper {
 public:
  Env(leveldb::Env* base, std::shared_ptr<Volume> volume)
      : EnvWrapper(base), volume_(std::move(volume)) {}

  Status NewSequentialFile(const std::string& name, leveldb::SequentialFile** into) override {
    *into = nullptr;
    std::unique_ptr<Reader> in;
    int error = Reader::Open(*volume_, name, &in);
    if (error == 0) *into = new SequentialFile(name, std::move(in));
    return Said(name, error);
  }

  Status NewRandomAccessFile(const std::string& name, leveldb::RandomAccessFile** into) override {
    *into = nullptr;
    std::unique_ptr<File> file;
    int error = volume_->OpenFile(name, &file);
    if (error == 0) *into = new RandomAccessFile(name, std::move(file));
    return Said(name, error);
  }

  Status NewWritableFile(const std::string& name, leveldb::WritableFile** into) override {
    *into = nullptr;
    std::unique_ptr<File> file;
    int error = volume_->CreateFile(name, &file);
    if (error == 0) *into = new WritableFile(name, std::move(file), 0);
    return Said(name, error);
  }

  Status NewAppendableFile(const std::string& name, leveldb::WritableFile** into) override {
    *into = nullptr;
    std::unique_ptr<File> file;
    uint64_t size = 0;
    int error = volume_->OpenOrCreate(name, &file);
    if (error == 0) error = file->Size(&size);
    if (error == 0) *into = new WritableFile(name, std::move(file), size);
    return Said(name, error);
  }

  bool FileExists(const std::string& name) override {
    struct stat stat;
    return volume_->Stat(name, &stat) == 0;
  }

  Status GetChildren(const std::string& dir, std::vector<std::string>* result) override {
    result->clear();
    return Said(dir, volume_->List(dir, [&](const char* name) { result->push_back(name); }));
  }

  Status RemoveFile(const std::string& name) override {
    return Said(name, volume_->RemoveFile(name));
  }
  Status CreateDir(const std::string& name) override { return Said(name, volume_->MakeDir(name)); }
  Status RemoveDir(const std::string& name) override {
    return Said(name, volume_->RemoveDir(name));
  }
  // The names that older programs call and override.
  Status DeleteFile(const std::string& name) override { return RemoveFile(name); }
  Status DeleteDir(const std::string& name) override { return RemoveDir(name); }

  Status GetFileSize(const std::string& name, uint64_t* size) override {
    struct stat stat;
    int error = volume_->Stat(name, &stat);
    *size = error == 0 ? static_cast<uint64_t>(stat.st_size) : 0;
    return Said(name, error);
  }

  Status RenameFile(const std::string& from, const std::string& to) override {
    return Said(from, volume_->Rename(from, to));
  }

  Status LockFile(const std::string& name, leveldb::FileLock** lock) override {
    *lock = nullptr;
    int error = volume_->Lock(name);
    if (error == EAGAIN) return Status::IOError("lock " + name, "already held by process");
    if (error == 0) *lock = new Lock(name);
    return Said("lock " + name, error);
  }

  Status UnlockFile(leveldb::FileLock* lock) override {
    std::unique_ptr<Lock> held(static_cast<Lock*>(lock));
    volume_->Unlock(held->name_);
    return Status::OK();
  }

  Status GetTestDirectory(std::string* path) override {
    const char* chosen = std::getenv("TEST_TMPDIR");
    *path = chosen != nullptr && *chosen != 0 ? chosen : "/tmp/leveldbtest";
    return Said(*path, volume_->MakeDirs(*path));
  }

  Status NewLogger(const std::string& name, leveldb::Logger** into) override {
    *into = nullptr;
    std::unique_ptr<File> file;
    int error = volume_->CreateFile(name, &file);
    if (error == 0) *into = new Logger(std::move(file));
    return Said(name, error);
  }

  // For the end of the program: closes the volume if nothing has it, else makes all durable.
  void End() {
    if (volume_.use_count() == 1) {
      volume_.reset();
      return;
    }
    int error = volume_->Sync();
    if (error != 0) std::fprintf(stderr, "siftfs: the last sync: %s\n", std::strerror(error));
  }

 private:
  std::shared_ptr<Volume> volume_;
};

}  // namespace

Status NewEnv(const std::string& address, Ops ops, leveldb::Env* base, leveldb::Env** into) {
  *into = nullptr;
  std::shared_ptr<Volume> volume;
  int error = Volume::Open(address, ops, &volume);
  if (error == 0) *into = new Env(base, std::move(volume));
  return Said(address, error);
}

leveldb::Env* EnvOfEnvironment(leveldb::Env* base) {
  const char* address = std::getenv("SIFTFS_VOLUME");
  if (address == nullptr || *address == 0) return nullptr;
  const char* word = std::getenv("SIFTFS_OPS");
  Ops ops = Ops::kCompound;
  if (word != nullptr && !ParseOps(word, &ops)) {
    std::fprintf(stderr, "siftfs: SIFTFS_OPS is %s, and not compound or single\n", word);
    std::exit(1);
  }
  static Env* env = nullptr;
  leveldb::Env* opened = nullptr;
  Status status = NewEnv(address, ops, base, &opened);
  if (!status.ok()) {
    std::fprintf(stderr, "siftfs: SIFTFS_VOLUME: %s\n", status.ToString().c_str());
    std::exit(1);
  }
  env = static_cast<Env*>(opened);
  std::atexit([] { env->End(); });
  return env;
}

}  // namespace siftfs
