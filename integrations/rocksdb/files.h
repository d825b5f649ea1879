// Open files, as RocksDB sees them.

#ifndef SIFTFS_INTEGRATIONS_ROCKSDB_FILES_H
#define SIFTFS_INTEGRATIONS_ROCKSDB_FILES_H

#include <rocksdb/env.h>
#include <rocksdb/file_system.h>

#include <memory>
#include <string>
#include <utility>

#include "../common/stream.h"

namespace siftfs {

// An errno in RocksDB's words.
rocksdb::IOStatus Said(const std::string& context, int error);

class SequentialFile : public rocksdb::FSSequentialFile {
 public:
  SequentialFile(std::string name, std::unique_ptr<Reader> in)
      : name_(std::move(name)), in_(std::move(in)) {}

  rocksdb::IOStatus Read(size_t n, const rocksdb::IOOptions&, rocksdb::Slice* result,
                         char* scratch, rocksdb::IODebugContext*) override;
  rocksdb::IOStatus PositionedRead(uint64_t offset, size_t n, const rocksdb::IOOptions&,
                                   rocksdb::Slice* result, char* scratch,
                                   rocksdb::IODebugContext*) override;
  rocksdb::IOStatus Skip(uint64_t n) override;

 private:
  const std::string name_;
  const std::unique_ptr<Reader> in_;
};

class RandomAccessFile : public rocksdb::FSRandomAccessFile {
 public:
  RandomAccessFile(std::string name, std::unique_ptr<File> file)
      : name_(std::move(name)), file_(std::move(file)) {}

  rocksdb::IOStatus Read(uint64_t offset, size_t n, const rocksdb::IOOptions&,
                         rocksdb::Slice* result, char* scratch,
                         rocksdb::IODebugContext*) const override;

 private:
  const std::string name_;
  const std::unique_ptr<File> file_;
};

// RocksDB keeps bytes back itself, so each Append is a write here.
class WritableFile : public rocksdb::FSWritableFile {
 public:
  WritableFile(std::string name, std::unique_ptr<File> file, uint64_t size,
               const rocksdb::FileOptions& options)
      : FSWritableFile(options), name_(std::move(name)), out_(std::move(file), size, 0) {}

  using FSWritableFile::Append;
  using FSWritableFile::PositionedAppend;
  rocksdb::IOStatus Append(const rocksdb::Slice& data, const rocksdb::IOOptions&,
                           rocksdb::IODebugContext*) override;
  // With the checksum that RocksDB hands over: the file system computes it of what it was given, in
  // the compound that writes.
  rocksdb::IOStatus Append(const rocksdb::Slice& data, const rocksdb::IOOptions&,
                           const rocksdb::DataVerificationInfo&, rocksdb::IODebugContext*) override;
  rocksdb::IOStatus Truncate(uint64_t size, const rocksdb::IOOptions&,
                             rocksdb::IODebugContext*) override;
  rocksdb::IOStatus Close(const rocksdb::IOOptions&, rocksdb::IODebugContext*) override;
  rocksdb::IOStatus Flush(const rocksdb::IOOptions&, rocksdb::IODebugContext*) override;
  rocksdb::IOStatus Sync(const rocksdb::IOOptions&, rocksdb::IODebugContext*) override;
  bool IsSyncThreadSafe() const override { return true; }
  uint64_t GetFileSize(const rocksdb::IOOptions&, rocksdb::IODebugContext*) override {
    return out_.size();
  }

 private:
  const std::string name_;
  Appender out_;
};

class RandomRWFile : public rocksdb::FSRandomRWFile {
 public:
  RandomRWFile(std::string name, std::unique_ptr<File> file)
      : name_(std::move(name)), file_(std::move(file)) {}

  rocksdb::IOStatus Write(uint64_t offset, const rocksdb::Slice& data, const rocksdb::IOOptions&,
                          rocksdb::IODebugContext*) override;
  rocksdb::IOStatus Read(uint64_t offset, size_t n, const rocksdb::IOOptions&,
                         rocksdb::Slice* result, char* scratch,
                         rocksdb::IODebugContext*) const override;
  rocksdb::IOStatus Flush(const rocksdb::IOOptions&, rocksdb::IODebugContext*) override;
  rocksdb::IOStatus Sync(const rocksdb::IOOptions&, rocksdb::IODebugContext*) override;
  rocksdb::IOStatus Close(const rocksdb::IOOptions&, rocksdb::IODebugContext*) override;

 private:
  const std::string name_;
  std::unique_ptr<File> file_;
};

class Directory : public rocksdb::FSDirectory {
 public:
  Directory(std::string name, std::shared_ptr<Volume> volume)
      : name_(std::move(name)), volume_(std::move(volume)) {}

  rocksdb::IOStatus Fsync(const rocksdb::IOOptions&, rocksdb::IODebugContext*) override;
  rocksdb::IOStatus Close(const rocksdb::IOOptions&, rocksdb::IODebugContext*) override;

 private:
  const std::string name_;
  const std::shared_ptr<Volume> volume_;
};

class Logger : public rocksdb::Logger {
 public:
  explicit Logger(std::unique_ptr<File> file) : out_(std::move(file)) {}
  ~Logger() override;

  using rocksdb::Logger::Logv;
  void Logv(const char* format, va_list values) override { out_.Write(format, values); }
  size_t GetLogFileSize() const override { return static_cast<size_t>(out_.size()); }

 protected:
  rocksdb::Status CloseImpl() override { return Said("log", out_.Close()); }

 private:
  mutable LineLog out_;
};

}  // namespace siftfs

#endif
