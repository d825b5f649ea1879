// What the tests have RocksDB do on a volume. rocksdb_work ...
//
//     put VOLUME OPS FIRST     as of leveldb_work
//     check VOLUME OPS COUNT   as of leveldb_work
//     handover VOLUME          bytes that are not those of the checksum that RocksDB hands over are
//                              refused, and leave the file as it was
//     names VOLUME             renames, links, locks and times, beyond env_basic_test

#include <rocksdb/db.h>
#include <rocksdb/env.h>
#include <rocksdb/file_system.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "../rocksdb/siftfs_fs.h"
#include "numbers.h"

namespace {

using rocksdb::FileOptions;
using rocksdb::IOOptions;
using rocksdb::Slice;

void Holds(bool truth, const std::string& what) {
  if (!truth) Fail("not so: " + what);
}

std::shared_ptr<rocksdb::FileSystem> Volume(const std::string& address, const std::string& word) {
  siftfs::Ops ops;
  if (!siftfs::ParseOps(word, &ops)) Fail(word + " is neither compound nor single");
  std::shared_ptr<rocksdb::FileSystem> made;
  Must(siftfs::NewFileSystem(address, ops, &made), address);
  return made;
}

std::unique_ptr<rocksdb::DB> Open(rocksdb::Env* env) {
  rocksdb::Options options;
  options.env = env;
  options.create_if_missing = true;
  options.paranoid_checks = true;
  options.write_buffer_size = 256 << 10;
  options.recycle_log_file_num = 2;
  // RocksDB then hands the checksum of what it writes to these files over.
  options.checksum_handoff_file_types.Add(rocksdb::FileType::kTableFile);
  options.checksum_handoff_file_types.Add(rocksdb::FileType::kDescriptorFile);
  options.checksum_handoff_file_types.Add(rocksdb::FileType::kWalFile);
  rocksdb::DB* db = nullptr;
  Must(rocksdb::DB::Open(options, "/db", &db), "open /db");
  return std::unique_ptr<rocksdb::DB>(db);
}

void Put(const std::string& volume, const std::string& ops, uint64_t first) {
  auto env = rocksdb::NewCompositeEnv(Volume(volume, ops));
  auto db = Open(env.get());
  rocksdb::WriteOptions durable;
  durable.sync = true;
  PutAll(*db, durable, first);
}

void Check(const std::string& volume, const std::string& ops, uint64_t count) {
  auto env = rocksdb::NewCompositeEnv(Volume(volume, ops));
  auto db = Open(env.get());
  std::unique_ptr<rocksdb::Iterator> all(db->NewIterator(rocksdb::ReadOptions()));
  CheckAll(*all, count);
}

void Handover(const std::string& volume) {
  auto fs = Volume(volume, "compound");
  std::unique_ptr<rocksdb::FSWritableFile> file;
  Must(fs->NewWritableFile("/handed", FileOptions(), &file, nullptr), "create");
  // The CRC-32C of "123456789", as its definition has it.
  const char right[] = "\x83\x92\x06\xe3", wrong[] = "\x83\x92\x06\xe2";
  rocksdb::DataVerificationInfo info;
  info.checksum = Slice(right, 4);
  Must(file->Append("123456789", IOOptions(), info, nullptr), "append with its checksum");
  info.checksum = Slice(wrong, 4);
  auto refused = file->Append("123456789", IOOptions(), info, nullptr);
  Holds(refused.IsCorruption(), "another checksum is corruption: " + refused.ToString());
  uint64_t size = 0;
  Must(fs->GetFileSize("/handed", IOOptions(), &size, nullptr), "size");
  Holds(size == 9, "the file is as it was: " + std::to_string(size));
  // What is appended after an error would stand in another's place.
  Holds(!file->Append("more", IOOptions(), nullptr).ok(), "the error stays");
  Must(fs->DeleteFile("/handed", IOOptions(), nullptr), "delete");
}

void Names(const std::string& volume) {
  auto fs = Volume(volume, "compound");
  IOOptions none;
  Must(fs->CreateDir("/names", none, nullptr), "create a directory");
  std::unique_ptr<rocksdb::FSWritableFile> file;
  Must(fs->NewWritableFile("/names/a", FileOptions(), &file, nullptr), "create");
  Must(file->Append("twelve bytes", none, nullptr), "append");
  Must(file->Close(none, nullptr), "close");
  Must(fs->LinkFile("/names/a", "/names/b", none, nullptr), "link");
  uint64_t number = 0;
  Must(fs->NumFileLinks("//names/./b", none, &number, nullptr), "links");
  Holds(number == 2, "two links");
  bool same = false;
  Must(fs->AreFilesSame("/names/a", "/names/b", none, &same, nullptr), "same");
  Holds(same, "both names are one file's");
  // A directory's new name, and a file's in place of another's.
  Must(fs->RenameFile("/names", "/renamed", none, nullptr), "rename a directory");
  Must(fs->NewWritableFile("/renamed/c", FileOptions(), &file, nullptr), "create");
  Must(fs->RenameFile("/renamed/a", "/renamed/c", none, nullptr), "replace");
  Must(fs->AreFilesSame("/renamed/c", "/renamed/b", none, &same, nullptr), "same");
  Holds(same, "the name is the other file's");
  Must(fs->Truncate("/renamed/c", 3, none, nullptr), "truncate");
  Must(fs->GetFileSize("/renamed/b", none, &number, nullptr), "size");
  Holds(number == 3, "both names show the size");
  // Reopened, a file goes on at its end; an old log that is used again starts at its front.
  Must(fs->ReopenWritableFile("/renamed/c", FileOptions(), &file, nullptr), "reopen");
  Must(file->Append("!", none, nullptr), "append");
  Must(fs->ReuseWritableFile("/renamed/d", "/renamed/c", FileOptions(), &file, nullptr), "reuse");
  Must(file->Append("T", none, nullptr), "append");
  std::string text;
  Must(rocksdb::ReadFileToString(fs.get(), "/renamed/d", &text), "read");
  Holds(text == "Twe!", "the bytes are " + text);
  rocksdb::FileLock *lock = nullptr, *other = nullptr;
  Must(fs->LockFile("/renamed/LOCK", none, &lock, nullptr), "lock");
  Holds(!fs->LockFile("/renamed//LOCK", none, &other, nullptr).ok(), "it is locked");
  Must(fs->UnlockFile(lock, none, nullptr), "unlock");
  Must(fs->LockFile("/renamed/LOCK", none, &lock, nullptr), "lock again");
  Must(fs->UnlockFile(lock, none, nullptr), "unlock");
  Must(fs->GetFileModificationTime("/renamed/d", none, &number, nullptr), "time");
  Holds(number > 1700000000, "the time is of today");
  // The volume is the same for those in this process that ask for it in the same way.
  std::shared_ptr<rocksdb::FileSystem> again;
  Must(siftfs::NewFileSystem(volume, siftfs::Ops::kCompound, &again), "open again");
  Must(again->FileExists("/renamed/d", none, nullptr), "the same volume");
  Holds(!siftfs::NewFileSystem(volume, siftfs::Ops::kSingle, &again).ok(), "in another way, no");
}

}  // namespace

int main(int count, char** words) {
  const std::string act = count > 1 ? words[1] : "";
  if (act == "put" && count == 5) {
    Put(words[2], words[3], std::strtoull(words[4], nullptr, 10));
  } else if (act == "check" && count == 5) {
    Check(words[2], words[3], std::strtoull(words[4], nullptr, 10));
  } else if (act == "handover" && count == 3) {
    Handover(words[2]);
  } else if (act == "names" && count == 3) {
    Names(words[2]);
  } else {
    Fail("put, check, handover or names, and its words");
  }
  return 0;
}
