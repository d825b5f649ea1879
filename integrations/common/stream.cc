#include "stream.h"

#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>

namespace siftfs {

namespace {

// Read with the opening: a block of LevelDB's and RocksDB's logs.
constexpr size_t kFirst = 32768;

siftfs_number At(uint64_t value) { return {value, -1}; }
siftfs_bytes Given(const void* data, size_t n) { return {data, n, -1, 0}; }
siftfs_bytes ResultOf(int step) { return {nullptr, SIZE_MAX, step, 0}; }

// A compound that is freed.
struct Steps {
  siftfs_compound* list = siftfs_compound_new();
  ~Steps() { siftfs_compound_free(list); }
  int Run(const File& file) {
    siftfs_file* const files[] = {file.raw()};
    return Volume::Result(
        siftfs_compound_run_in(list, file.volume().raw(), files, 1, SIFTFS_VISIBLE));
  }
};

}  // namespace

Appender::Appender(std::unique_ptr<File> file, uint64_t size, size_t buffer)
    : file_(std::move(file)),
      written_(size),
      buffer_(file_->volume().ops() == Ops::kCompound ? buffer : 0),
      holds_(file_->volume().direct() && buffer_ > 0) {
  waiting_.reserve(buffer_);
}

Appender::~Appender() {
  // The caller could have asked for the error.
  if (file_ != nullptr) Close();
}

int Appender::Fail(int error) {
  if (error_ == 0) error_ = error;
  return error;
}

int Appender::Write(const char* data, size_t n) {
  clean_ = false;
  int error = file_->Write(written_, data, n);
  if (error != 0) return Fail(error);
  written_ += n;
  return 0;
}

int Appender::Append(const char* data, size_t n) {
  if (error_ != 0 || file_ == nullptr) return error_ != 0 ? error_ : EBADF;
  if (waiting_.size() + n <= buffer_) {
    waiting_.append(data, n);
    return 0;
  }
  int error = Drain();
  if (error != 0) return error;
  if (n < buffer_) {
    waiting_.append(data, n);
    return 0;
  }
  return Write(data, n);
}

bool Appender::ComputesChecksums() const {
  return file_ != nullptr && file_->raw() != nullptr && file_->volume().ops() == Ops::kCompound;
}

int Appender::AppendRecord(char type, const char* payload, size_t n) {
  // The end of a block, filled with zeros.
  int error = Flush();
  if (error != 0) return error;
  const char header[3] = {static_cast<char>(n & 0xff), static_cast<char>(n >> 8), type};
  Steps steps;
  // One write, of bytes that the steps before it make: a compound that changes one thing is no
  // record in the volume's log before it is synced.
  int rest = siftfs_compound_join(steps.list, Given(header, sizeof header), Given(payload, n));
  siftfs_bytes checked = {nullptr, n + 1, rest, 2};
  int sum = siftfs_compound_checksum(steps.list, SIFTFS_MASKED_CRC32C, checked);
  int whole = siftfs_compound_join(steps.list, ResultOf(sum), ResultOf(rest));
  siftfs_compound_write(steps.list, 0, At(written_), ResultOf(whole));
  error = steps.Run(*file_);
  if (error != 0) return Fail(error);
  written_ += 4 + sizeof header + n;
  return 0;
}

int Appender::AppendVerified(const char* data, size_t n, uint32_t crc) {
  int error = Drain();
  if (error != 0) return error;
  if (file_->raw() == nullptr) return Fail(EOPNOTSUPP);
  Steps steps;
  int sum = siftfs_compound_checksum(steps.list, SIFTFS_CRC32C, Given(data, n));
  siftfs_compound_write(steps.list, 0, At(written_), Given(data, n));
  siftfs_compound_want(steps.list, sum);
  uint64_t found = 0;
  error = steps.Run(*file_);
  if (error == 0) error = Volume::Result(siftfs_compound_number(steps.list, sum, &found));
  if (error == 0 && found != crc) {
    error = file_->Truncate(written_);
    return Fail(error != 0 ? error : EBADMSG);
  }
  if (error != 0) return Fail(error);
  written_ += n;
  return 0;
}

int Appender::Flush() {
  if (error_ != 0 || file_ == nullptr) return error_ != 0 ? error_ : EBADF;
  return holds_ ? 0 : Drain();
}

int Appender::Drain() {
  if (error_ != 0 || file_ == nullptr) return error_ != 0 ? error_ : EBADF;
  if (waiting_.empty()) return 0;
  int error = Write(waiting_.data(), waiting_.size());
  waiting_.clear();
  return error;
}

int Appender::Sync() {
  if (holds_ && clean_ && error_ == 0 && file_ != nullptr && !waiting_.empty()) {
    int error = file_->WriteDurable(written_, waiting_.data(), waiting_.size());
    if (error != 0) return Fail(error);
    written_ += waiting_.size();
    waiting_.clear();
    return 0;
  }
  int error = Drain();
  if (error == 0) error = Fail(file_->Sync());
  clean_ = error == 0;
  return error;
}

int Appender::Close() {
  if (file_ == nullptr) return error_;
  std::unique_ptr<File> file = std::move(file_);
  if (error_ == 0 && !waiting_.empty()) {
    Fail(file->WriteClose(written_, waiting_.data(), waiting_.size()));
  }
  waiting_.clear();
  return error_;
}

int Appender::Truncate(uint64_t size) {
  int error = Drain();
  clean_ = false;
  if (error == 0) error = Fail(file_->Truncate(size));
  if (error == 0) written_ = size;
  return error;
}

Reader::Reader(std::unique_ptr<File> file, std::string first)
    : file_(std::move(file)), first_(std::move(first)) {}

int Reader::Open(Volume& volume, const std::string& path, std::unique_ptr<Reader>* into) {
  std::unique_ptr<File> file;
  std::string first;
  int error;
  if (volume.ops() == Ops::kCompound) {
    first.resize(kFirst);
    size_t count = 0;
    error = volume.OpenRead(path, &first[0], kFirst, &count, &file);
    first.resize(count);
  } else {
    error = volume.OpenFile(path, &file);
  }
  if (error == 0) into->reset(new Reader(std::move(file), std::move(first)));
  return error;
}

int Reader::Read(size_t n, char* into, size_t* count) {
  *count = 0;
  if (at_ < first_.size()) {
    *count = std::min<size_t>(n, first_.size() - at_);
    std::memcpy(into, first_.data() + at_, *count);
    at_ += *count;
    if (*count == n) return 0;
  }
  // The libraries take a short read for the end of the file: the rest is asked for.
  std::string().swap(first_);
  size_t more = 0;
  int error = file_->Read(at_, n - *count, into + *count, &more);
  at_ += more;
  *count += more;
  return error;
}

int Reader::ReadAt(uint64_t offset, size_t n, char* into, size_t* count) const {
  return file_->Read(offset, n, into, count);
}

void LineLog::Write(const char* format, std::va_list values) {
  char line[4096];
  struct timeval now;
  gettimeofday(&now, nullptr);
  struct tm local;
  localtime_r(&now.tv_sec, &local);
  size_t n = std::strftime(line, sizeof line, "%Y/%m/%d-%H:%M:%S", &local);
  n += static_cast<size_t>(std::snprintf(line + n, sizeof line - n, ".%06ld %ld ",
                                         static_cast<long>(now.tv_usec), syscall(SYS_gettid)));
  int more = std::vsnprintf(line + n, sizeof line - n, format, values);
  // A longer line is cut, and still ends as a line.
  n = std::min(n + static_cast<size_t>(std::max(more, 0)), sizeof line - 1);
  if (line[n - 1] != '\n') line[n == sizeof line - 1 ? n - 1 : n++] = '\n';
  std::lock_guard<std::mutex> guard(lock_);
  // The library's work goes on without its log.
  (void)out_.Append(line, n);
}

int LineLog::Close() {
  std::lock_guard<std::mutex> guard(lock_);
  return out_.Close();
}

uint64_t LineLog::size() {
  std::lock_guard<std::mutex> guard(lock_);
  return out_.size();
}

}  // namespace siftfs
