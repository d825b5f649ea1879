// Files that are read or written from one end to the other, as logs and tables are.

#ifndef SIFTFS_INTEGRATIONS_STREAM_H
#define SIFTFS_INTEGRATIONS_STREAM_H

#include <cerrno>
#include <cstdarg>
#include <memory>
#include <mutex>
#include <string>

#include "volume.h"

namespace siftfs {

// Writes at the end of a file, for one thread at a time. An error stays: what is appended after one
// would leave a gap. All functions return 0 or an errno.
class Appender {
 public:
  // `buffer` bytes wait for more, or for Flush, where the volume is asked by compounds; where it is
  // asked singly, each Append is a write, as the library made it.
  Appender(std::unique_ptr<File> file, uint64_t size, size_t buffer);
  ~Appender();

  int Append(const char* data, size_t n);
  // A record of LevelDB's log: the masked CRC-32C of `type` and `payload`, its length in two bytes,
  // the type, the payload. One compound computes the checksum in the file system and writes. It
  // is to other callers what one write is. ComputesChecksums must be true.
  int AppendRecord(char type, const char* payload, size_t n);
  bool ComputesChecksums() const;
  // A write of which the caller says what checksum (CRC-32C) its bytes have: EBADMSG if the file
  // system finds another, and nothing is appended.
  int AppendVerified(const char* data, size_t n, uint32_t crc);

  // Has what waits written to the file. A crash of the machine, and of this process with a volume
  // of its own, may take it all the same. Where files are at a target, what fits into the buffer
  // waits for Sync, which is one round trip then; and a crash of this process takes it.
  int Flush();
  // Everything appended is durable on return, with the file's name.
  int Sync();
  // What was written before is durable on return. Another thread may append meanwhile.
  int SyncWritten() { return file_ == nullptr ? EBADF : file_->Sync(); }
  // Writes what waits and closes, by one call where it can.
  int Close();
  // Makes the file so long; what is appended comes behind.
  int Truncate(uint64_t size);

  uint64_t size() const { return written_ + waiting_.size(); }

 private:
  int Fail(int error);
  int Write(const char* data, size_t n);
  int Drain();

  std::unique_ptr<File> file_;
  uint64_t written_;
  const size_t buffer_;
  // What is flushed waits for a sync.
  const bool holds_;
  std::string waiting_;
  // Nothing was written since the last sync.
  bool clean_ = false;
  int error_ = 0;
};

// Reads from the front, for one thread at a time. By compound it is opened with the first bytes.
class Reader {
 public:
  static int Open(Volume& volume, const std::string& path, std::unique_ptr<Reader>* into);
  // Reads up to n bytes; 0 at the end of the file.
  int Read(size_t n, char* into, size_t* count);
  // Reads at a place, which is not where Read goes on.
  int ReadAt(uint64_t offset, size_t n, char* into, size_t* count) const;
  void Skip(uint64_t n) { at_ += n; }

 private:
  Reader(std::unique_ptr<File> file, std::string first);

  std::unique_ptr<File> file_;
  // The file's first bytes, if it was opened with them, until they have been read.
  std::string first_;
  uint64_t at_ = 0;
};

// Lines of a log for people, each written at once, from any thread.
class LineLog {
 public:
  explicit LineLog(std::unique_ptr<File> file) : out_(std::move(file), 0, 0) {}
  void Write(const char* format, std::va_list values);
  int Close();
  uint64_t size();

 private:
  std::mutex lock_;
  Appender out_;
};

}  // namespace siftfs

#endif
