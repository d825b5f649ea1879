// A volume of SiftFS for libraries that want a file system of their own to work on: what LevelDB's
// Env and RocksDB's FileSystem have in common. All functions return 0 or an errno.
//
// docs/design/integrations.md says how calls of the libraries become operations of SiftFS, and what
// is durable when.

#ifndef SIFTFS_INTEGRATIONS_VOLUME_H
#define SIFTFS_INTEGRATIONS_VOLUME_H

#include <siftfs.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace siftfs {

// How the volume is asked.
enum class Ops {
  kCompound,  // what belongs together is one call: compounds, publishes, tickets
  kSingle,    // one call for each call of the library, as the system calls would be
};

// Reads "compound" or "single"; false for anything else.
bool ParseOps(const std::string& word, Ops* into);

// An absolute path without empty names, "." and a slash at its end; "/" for the root.
std::string CleanPath(const std::string& name);

class Volume;

// An open regular file. It keeps its volume open. Reads and writes may come from several threads.
class File {
 public:
  File(std::shared_ptr<Volume> volume, siftfs_file* file) : volume_(volume), file_(file) {}
  File(std::shared_ptr<Volume> volume, siftfs_direct_file* file) : volume_(volume), direct_(file) {}
  ~File();
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  // Reads up to n bytes; fewer only at the end of the file.
  int Read(uint64_t offset, size_t n, char* into, size_t* count) const;
  // Writes all n bytes.
  int Write(uint64_t offset, const char* from, size_t n);
  // As Write and Sync; one round trip, where the file is at a target.
  int WriteDurable(uint64_t offset, const char* from, size_t n);
  int Size(uint64_t* into) const;
  int Truncate(uint64_t size);
  // Data, size and name are durable on return. By compound: a ticket is drawn and waited for, so
  // that calls of several threads share a flush. Singly: fdatasync.
  int Sync();
  // Closes the file, after it wrote these bytes by the same call. Nothing may be called afterwards.
  int WriteClose(uint64_t offset, const char* from, size_t n);

  Volume& volume() const { return *volume_; }
  // Nothing for a file at a target.
  siftfs_file* raw() const { return file_; }

 private:
  std::shared_ptr<Volume> volume_;
  siftfs_file* file_ = nullptr;
  siftfs_direct_file* direct_ = nullptr;
};

// A volume that is open. It is closed with the last reference; files hold one each.
class Volume : public std::enable_shared_from_this<Volume> {
 public:
  // Opens the volume at an address: the path of a file or block device, which this process opens
  // and no other one may have; or, with "unix:", "tcp:" or HOST:/VOLUME, one that a server has for
  // several processes, whose calls wait while the server is away. With "direct:" before where a
  // server is, files are read and written at the target that has the volume's storage, and are lost
  // with the server. A second opening of an address in this process gets the same volume; EBUSY if
  // it asks for other `ops`.
  static int Open(const std::string& address, Ops ops, std::shared_ptr<Volume>* into);

  Ops ops() const { return ops_; }
  siftfs_volume* raw() const { return volume_; }
  // Are files at a target?
  bool direct() const { return direct_ != nullptr; }
  // Everything that was done before is durable on return.
  int Sync() { return Result(siftfs_volume_sync(volume_)); }

  // Opens a file that is there.
  int OpenFile(const std::string& path, std::unique_ptr<File>* into);
  // Creates a file, or makes one that is there empty.
  int CreateFile(const std::string& path, std::unique_ptr<File>* into);
  // Opens a file, which is created if it is not there.
  int OpenOrCreate(const std::string& path, std::unique_ptr<File>* into);
  // Opens a file and reads its first bytes, by one call.
  int OpenRead(const std::string& path, char* first, size_t n, size_t* count,
               std::unique_ptr<File>* into);

  int Stat(const std::string& path, struct stat* into);
  int MakeDir(const std::string& path);
  // A directory and those above it, as far as they are not there.
  int MakeDirs(const std::string& path);
  int RemoveDir(const std::string& path);
  int RemoveFile(const std::string& path);
  int Link(const std::string& existing, const std::string& to);
  // A new name, in place of another file's or not. A file's change is ordered before everything
  // that becomes durable later: a crash that keeps one of those keeps the change. By compound it is
  // a publish, and the call waits for nothing; singly a rename and a sync of the directory. A
  // directory's is durable with SyncDir.
  int Rename(const std::string& from, const std::string& to);
  int SyncDir(const std::string& path);
  int List(const std::string& path, const std::function<void(const char* name)>& then);

  // Locks a name against all others that lock it, in this process and, by flock(2), in others;
  // makes the file. EAGAIN: it is locked.
  int Lock(const std::string& path);
  void Unlock(const std::string& path);

  // The errno of a call that returned -1, or 0.
  static int Result(int returned);

 private:
  Volume(siftfs_volume* volume, siftfs_direct* direct, Ops ops)
      : volume_(volume), direct_(direct), ops_(ops) {}
  static int Connect(const std::string& address, Ops ops, Volume** into);
  int End();
  static void Close(const std::string& key, Volume* volume);
  int OpenOrCreate(const std::string& clean, siftfs_file** into);
  int OpenOrCreate(const std::string& clean, siftfs_direct_file** into);
  template <typename Raw>
  int Opened(Raw* file, std::unique_ptr<File>* into);
  // Tries to open a file that is there, and to create one that is not, until one of them does.
  template <typename Raw>
  static int Either(const std::function<Raw*(int flags)>& open, Raw** into);

  siftfs_volume* volume_;
  // The session that volume_ is of, if it is one of files at a target.
  siftfs_direct* const direct_;
  const Ops ops_;
  std::mutex lock_;
  std::map<std::string, siftfs_file*> locked_;
};

}  // namespace siftfs

#endif
