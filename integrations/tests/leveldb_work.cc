// What the tests and the bench have LevelDB do on a volume. leveldb_work ...
//
//     put VOLUME OPS FIRST           synchronous puts of numbers from FIRST on, for ever; each is
//                                    written to the standard output once it is acknowledged
//     check VOLUME OPS COUNT         the first COUNT numbers are there, at most one more, and
//                                    nothing else; prints how many
//     records VOLUME DIR             the log has the same bytes as in DIR on the machine; prints how
//                                    many records the file system computed checksums of
//     full VOLUME OPS                puts until there is no space, which is an error and loses
//                                    nothing that was synced; once there is space it goes on
//     bench VOLUME OPS VALUE COUNT   puts and gets in random order, and puts with a sync, a
//                                    hundredth as many: each per second, and processor time

#include <leveldb/db.h>
#include <leveldb/env.h>
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>

#include "../leveldb/record_file.h"
#include "../leveldb/siftfs_env.h"
#include "numbers.h"

namespace {

using leveldb::Slice;
using leveldb::Status;

std::unique_ptr<leveldb::Env> Volume(const std::string& address, const std::string& word) {
  siftfs::Ops ops;
  if (!siftfs::ParseOps(word, &ops)) Fail(word + " is neither compound nor single");
  leveldb::Env* env = nullptr;
  Must(siftfs::NewEnv(address, ops, leveldb::Env::Default(), &env), address);
  return std::unique_ptr<leveldb::Env>(env);
}

std::unique_ptr<leveldb::DB> Open(leveldb::Env* env, const std::string& path, size_t buffer) {
  leveldb::Options options;
  options.env = env;
  options.create_if_missing = true;
  options.compression = leveldb::kNoCompression;
  options.paranoid_checks = true;
  options.write_buffer_size = buffer;
  leveldb::DB* db = nullptr;
  Must(leveldb::DB::Open(options, path, &db), "open " + path);
  return std::unique_ptr<leveldb::DB>(db);
}

void Put(const std::string& volume, const std::string& ops, uint64_t first) {
  auto env = Volume(volume, ops);
  // Small, so that tables and manifests are written all the time.
  auto db = Open(env.get(), "/db", 256 << 10);
  leveldb::WriteOptions durable;
  durable.sync = true;
  PutAll(*db, durable, first);
}

void Check(const std::string& volume, const std::string& ops, uint64_t count) {
  auto env = Volume(volume, ops);
  auto db = Open(env.get(), "/db", 256 << 10);
  leveldb::ReadOptions options;
  options.verify_checksums = true;
  std::unique_ptr<leveldb::Iterator> all(db->NewIterator(options));
  CheckAll(*all, count);
}

// Counts the records that the file system computed checksums of.
class Counted : public siftfs::RecordFile {
 public:
  Counted(leveldb::WritableFile* file, int* count) : file_(file), count_(count) {}
  bool TakesRecords() const override { return Records() != nullptr && Records()->TakesRecords(); }
  Status AppendRecord(char type, const Slice& payload) override {
    ++*count_;
    return Records()->AppendRecord(type, payload);
  }
  Status Append(const Slice& data) override { return file_->Append(data); }
  Status Close() override { return file_->Close(); }
  Status Flush() override { return file_->Flush(); }
  Status Sync() override { return file_->Sync(); }

 private:
  siftfs::RecordFile* Records() const { return dynamic_cast<siftfs::RecordFile*>(file_.get()); }

  std::unique_ptr<leveldb::WritableFile> file_;
  int* const count_;
};

class CountingEnv : public leveldb::EnvWrapper {
 public:
  CountingEnv(leveldb::Env* base, int* count) : EnvWrapper(base), count_(count) {}
  Status NewWritableFile(const std::string& name, leveldb::WritableFile** into) override {
    Status status = target()->NewWritableFile(name, into);
    if (status.ok()) *into = new Counted(*into, count_);
    return status;
  }

 private:
  int* const count_;
};

// A log of records of all lengths around those that end near a block's end, of 32,768 bytes.
std::string Log(leveldb::Env* env, const std::string& path) {
  {
    auto db = Open(env, path, 64 << 20);
    for (size_t length : {0, 1, 32000, 700, 32768, 32761, 32755, 100000, 5, 32700}) {
      for (size_t more = 0; more < 12; more++) {
        Must(db->Put(leveldb::WriteOptions(), "k", std::string(length + more, 'v')), "put");
      }
    }
  }
  std::string bytes;
  Must(leveldb::ReadFileToString(env, path + "/000003.log", &bytes), "read the log");
  return bytes;
}

void Records(const std::string& volume, const std::string& dir) {
  auto env = Volume(volume, "compound");
  int count = 0, none = 0;
  CountingEnv counting(env.get(), &count), elsewhere(leveldb::Env::Default(), &none);
  std::string ours = Log(&counting, "/records"), theirs = Log(&elsewhere, dir + "/records");
  if (ours.size() < 1000000) Fail("the log is short: " + std::to_string(ours.size()));
  if (ours != theirs) Fail("the logs differ");
  if (none != 0) Fail("a file of the machine took records");
  std::printf("%d\n", count);
}

void Full(const std::string& volume, const std::string& ops) {
  auto env = Volume(volume, ops);
  Must(leveldb::WriteStringToFile(env.get(), std::string(16 << 20, 'b'), "/ballast"), "ballast");
  leveldb::WriteOptions durable;
  durable.sync = true;
  uint64_t number = 0;
  {
    auto db = Open(env.get(), "/db", 1 << 20);
    Status status;
    while (status.ok() && number < 100000) {
      status = db->Put(durable, Key(number), std::string(60000, 'v'));
      if (status.ok()) number++;
    }
    if (status.ToString().find("No space left") == std::string::npos) Fail(status.ToString());
  }
  Must(env->RemoveFile("/ballast"), "remove the ballast");
  auto db = Open(env.get(), "/db", 1 << 20);
  std::string found;
  for (uint64_t one = 0; one < number; one++) {
    Must(db->Get(leveldb::ReadOptions(), Key(one), &found), "get " + Key(one));
    if (found != std::string(60000, 'v')) Fail("another value of " + Key(one));
  }
  Must(db->Put(durable, "more", "is put"), "put with space");
  std::printf("full after %llu puts, all there\n", static_cast<unsigned long long>(number));
}

// What so many operations took: time, and processor time of all threads.
class Took {
 public:
  // Prints how many a second, and microseconds of processor time for each.
  void Print(uint64_t count) const {
    std::chrono::duration<double> wall = std::chrono::steady_clock::now() - since_;
    double many = static_cast<double>(count);
    std::printf("%.1f %.3f ", many / wall.count(), (Processor() - processor_) * 1e6 / many);
  }

 private:
  static double Processor() {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    auto seconds = [](timeval time) { return time.tv_sec + time.tv_usec / 1e6; };
    return seconds(used.ru_utime) + seconds(used.ru_stime);
  }

  const std::chrono::steady_clock::time_point since_ = std::chrono::steady_clock::now();
  const double processor_ = Processor();
};

void Bench(const std::string& volume, const std::string& ops, size_t length, uint64_t count) {
  auto env = Volume(volume, ops);
  auto db = Open(env.get(), "/db", 4 << 20);
  std::mt19937_64 random(7);
  const std::string value(length, 'v');
  auto puts = [&](uint64_t many, bool sync) {
    leveldb::WriteOptions options;
    options.sync = sync;
    Took took;
    for (uint64_t i = 0; i < many; i++) {
      Must(db->Put(options, Key(random() % count), value), "put");
    }
    took.Print(many);
  };
  puts(count, false);
  Took took;
  std::string found;
  for (uint64_t i = 0; i < count; i++) {
    Status status = db->Get(leveldb::ReadOptions(), Key(random() % count), &found);
    if (!status.ok() && !status.IsNotFound()) Must(status, "get");
  }
  took.Print(count);
  puts(count / 100, true);
}

uint64_t Number(const char* text) { return std::strtoull(text, nullptr, 10); }

}  // namespace

int main(int count, char** words) {
  const std::string act = count > 1 ? words[1] : "";
  if (act == "put" && count == 5) {
    Put(words[2], words[3], Number(words[4]));
  } else if (act == "check" && count == 5) {
    Check(words[2], words[3], Number(words[4]));
  } else if (act == "records" && count == 4) {
    Records(words[2], words[3]);
  } else if (act == "full" && count == 4) {
    Full(words[2], words[3]);
  } else if (act == "bench" && count == 6) {
    Bench(words[2], words[3], Number(words[4]), Number(words[5]));
  } else {
    Fail("put, check, records, full or bench, and its words");
  }
  return 0;
}
