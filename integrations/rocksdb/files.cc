#include "files.h"

#include <cerrno>
#include <cstring>

namespace siftfs {

using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;
using rocksdb::Slice;

IOStatus Said(const std::string& context, int error) {
  switch (error) {
    case 0:
      return IOStatus::OK();
    case ENOENT:
      return IOStatus::PathNotFound(context, std::strerror(error));
    case ENOSPC:
      return IOStatus::NoSpace(context, std::strerror(error));
    case EBADMSG:
      return IOStatus::Corruption(context, "the file system was given other bytes");
    default:
      return IOStatus::IOError(context, std::strerror(error));
  }
}

IOStatus SequentialFile::Read(size_t n, const IOOptions&, Slice* result, char* scratch,
                              IODebugContext*) {
  size_t count = 0;
  int error = in_->Read(n, scratch, &count);
  *result = Slice(scratch, count);
  return Said(name_, error);
}

IOStatus SequentialFile::PositionedRead(uint64_t offset, size_t n, const IOOptions&, Slice* result,
                                        char* scratch, IODebugContext*) {
  size_t count = 0;
  int error = in_->ReadAt(offset, n, scratch, &count);
  *result = Slice(scratch, count);
  return Said(name_, error);
}

IOStatus SequentialFile::Skip(uint64_t n) {
  in_->Skip(n);
  return IOStatus::OK();
}

IOStatus RandomAccessFile::Read(uint64_t offset, size_t n, const IOOptions&, Slice* result,
                                char* scratch, IODebugContext*) const {
  size_t count = 0;
  int error = file_->Read(offset, n, scratch, &count);
  *result = Slice(scratch, count);
  return Said(name_, error);
}

IOStatus WritableFile::Append(const Slice& data, const IOOptions&, IODebugContext*) {
  return Said(name_, out_.Append(data.data(), data.size()));
}

IOStatus WritableFile::Append(const Slice& data, const IOOptions& options,
                              const rocksdb::DataVerificationInfo& info, IODebugContext* debug) {
  // The only checksum that RocksDB 7 hands over is CRC-32C, little endian.
  if (!out_.ComputesChecksums() || info.checksum.size() != sizeof(uint32_t)) {
    return Append(data, options, debug);
  }
  uint32_t crc = 0;
  for (size_t i = 0; i < sizeof crc; i++) {
    crc |= static_cast<uint32_t>(static_cast<unsigned char>(info.checksum[i])) << (8 * i);
  }
  return Said(name_, out_.AppendVerified(data.data(), data.size(), crc));
}

IOStatus WritableFile::Truncate(uint64_t size, const IOOptions&, IODebugContext*) {
  return Said(name_, out_.Truncate(size));
}

IOStatus WritableFile::Close(const IOOptions&, IODebugContext*) {
  return Said(name_, out_.Close());
}

IOStatus WritableFile::Flush(const IOOptions&, IODebugContext*) { return Said(name_, 0); }

IOStatus WritableFile::Sync(const IOOptions&, IODebugContext*) {
  return Said(name_, out_.SyncWritten());
}

IOStatus RandomRWFile::Write(uint64_t offset, const Slice& data, const IOOptions&,
                             IODebugContext*) {
  return Said(name_, file_ == nullptr ? EBADF : file_->Write(offset, data.data(), data.size()));
}

IOStatus RandomRWFile::Read(uint64_t offset, size_t n, const IOOptions&, Slice* result,
                            char* scratch, IODebugContext*) const {
  size_t count = 0;
  int error = file_ == nullptr ? EBADF : file_->Read(offset, n, scratch, &count);
  *result = Slice(scratch, count);
  return Said(name_, error);
}

IOStatus RandomRWFile::Flush(const IOOptions&, IODebugContext*) { return Said(name_, 0); }

IOStatus RandomRWFile::Sync(const IOOptions&, IODebugContext*) {
  return Said(name_, file_ == nullptr ? EBADF : file_->Sync());
}

IOStatus RandomRWFile::Close(const IOOptions&, IODebugContext*) {
  file_.reset();
  return IOStatus::OK();
}

IOStatus Directory::Fsync(const IOOptions&, IODebugContext*) {
  return Said(name_, volume_->SyncDir(name_));
}

IOStatus Directory::Close(const IOOptions&, IODebugContext*) { return IOStatus::OK(); }

Logger::~Logger() {
  // RocksDB's Close sets the mark of the class above; after it this one does nothing.
  out_.Close();
}

}  // namespace siftfs
