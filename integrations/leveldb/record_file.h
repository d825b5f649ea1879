// A file of an Env that computes the checksums of the log's records itself. checksum.patch has
// LevelDB's log writer ask for it.

#ifndef SIFTFS_INTEGRATIONS_LEVELDB_RECORD_FILE_H
#define SIFTFS_INTEGRATIONS_LEVELDB_RECORD_FILE_H

#include <leveldb/env.h>
#include <leveldb/slice.h>
#include <leveldb/status.h>

namespace siftfs {

class RecordFile : public leveldb::WritableFile {
 public:
  ~RecordFile() override = default;
  // Does this file take records? If not, the writer computes the checksum and appends header and
  // payload, as it does for any other file.
  virtual bool TakesRecords() const = 0;
  // Appends, and writes to the file, a record: the masked CRC-32C of the byte `type` and the
  // payload, four bytes; the payload's length, two bytes; `type`; the payload of at most 65,535
  // bytes. Numbers are little endian.
  virtual leveldb::Status AppendRecord(char type, const leveldb::Slice& payload) = 0;
};

}  // namespace siftfs

#endif
