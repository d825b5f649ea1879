#include "volume.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

namespace siftfs {

namespace {

// The volumes of this process by their addresses. An entry whose volume is gone is being closed.
struct Registry {
  std::mutex lock;
  std::condition_variable closed;
  std::map<std::string, std::weak_ptr<Volume>> open;
};

// It is never destroyed: files of the libraries' global objects are closed after main.
Registry& registry() {
  static Registry* one = new Registry;
  return *one;
}

// Is it where a server listens, and no path of a file?
bool IsServed(const std::string& address) {
  return address.rfind("unix:", 0) == 0 || address.rfind("tcp:", 0) == 0 ||
         (address[0] != '/' && address.find(":/") != std::string::npos);
}

// The same address for all its names.
std::string Key(const std::string& address) {
  if (IsServed(address)) return address;
  char* real = realpath(address.c_str(), nullptr);
  std::string key = real != nullptr ? real : address;
  free(real);
  return key;
}

void Call(void* context, const char* name, uint64_t, unsigned char) {
  (*static_cast<const std::function<void(const char*)>*>(context))(name);
}

std::string Above(const std::string& path) {
  size_t slash = path.rfind('/');
  return slash == 0 || slash == std::string::npos ? "/" : path.substr(0, slash);
}

}  // namespace

bool ParseOps(const std::string& word, Ops* into) {
  if (word == "compound") *into = Ops::kCompound;
  if (word == "single") *into = Ops::kSingle;
  return word == "compound" || word == "single";
}

std::string CleanPath(const std::string& name) {
  std::string clean;
  size_t at = 0;
  while (at < name.size()) {
    size_t end = name.find('/', at);
    if (end == std::string::npos) end = name.size();
    std::string part = name.substr(at, end - at);
    if (!part.empty() && part != ".") clean += "/" + part;
    at = end + 1;
  }
  return clean.empty() ? "/" : clean;
}

int Volume::Result(int returned) { return returned == -1 ? errno : 0; }

int Volume::Open(const std::string& address, Ops ops, std::shared_ptr<Volume>* into) {
  const std::string key = Key(address);
  std::unique_lock<std::mutex> guard(registry().lock);
  for (auto found = registry().open.find(key); found != registry().open.end();
       found = registry().open.find(key)) {
    if (std::shared_ptr<Volume> volume = found->second.lock()) {
      if (volume->ops() != ops) return EBUSY;
      *into = volume;
      return 0;
    }
    registry().closed.wait(guard);
  }
  // The one place where a volume is opened.
  siftfs_volume* raw = IsServed(address) ? siftfs_volume_connect(address.c_str(), nullptr)
                                         : siftfs_volume_open(address.c_str());
  if (raw == nullptr) return errno;
  into->reset(new Volume(raw, ops), [key](Volume* volume) { Close(key, volume); });
  registry().open[key] = *into;
  return 0;
}

void Volume::Close(const std::string& key, Volume* volume) {
  std::unique_lock<std::mutex> guard(registry().lock);
  for (const auto& locked : volume->locked_) siftfs_close(locked.second);
  if (siftfs_volume_close(volume->volume_) == -1) {
    // What was durable is there at the next opening, which is all that was promised.
    std::fprintf(stderr, "siftfs: %s was not closed in order: %s\n", key.c_str(),
                 std::strerror(errno));
  }
  delete volume;
  registry().open.erase(key);
  registry().closed.notify_all();
}

int Volume::Opened(siftfs_file* file, std::unique_ptr<File>* into) {
  if (file == nullptr) return errno;
  into->reset(new File(shared_from_this(), file));
  return 0;
}

int Volume::OpenFile(const std::string& path, std::unique_ptr<File>* into) {
  return Opened(siftfs_open(volume_, CleanPath(path).c_str(), O_RDWR, 0), into);
}

int Volume::OpenOrCreate(const std::string& clean, siftfs_file** into) {
  // Another thread may create or remove it between the two calls.
  for (;;) {
    *into = siftfs_open(volume_, clean.c_str(), O_RDWR | O_CREAT, 0644);
    if (*into != nullptr) return 0;
    if (errno != EEXIST) return errno;
    *into = siftfs_open(volume_, clean.c_str(), O_RDWR, 0);
    if (*into != nullptr) return 0;
    if (errno != ENOENT) return errno;
  }
}

int Volume::OpenOrCreate(const std::string& path, std::unique_ptr<File>* into) {
  siftfs_file* file;
  int error = OpenOrCreate(CleanPath(path), &file);
  return error != 0 ? error : Opened(file, into);
}

int Volume::CreateFile(const std::string& path, std::unique_ptr<File>* into) {
  std::unique_ptr<File> file;
  int error = OpenOrCreate(path, &file);
  if (error == 0) error = file->Truncate(0);
  if (error == 0) *into = std::move(file);
  return error;
}

int Volume::OpenRead(const std::string& path, char* first, size_t n, size_t* count,
                     std::unique_ptr<File>* into) {
  const std::string clean = CleanPath(path);
  return Opened(siftfs_open_read(volume_, clean.c_str(), first, n, 0, count), into);
}

int Volume::Stat(const std::string& path, struct stat* into) {
  return Result(siftfs_stat(volume_, CleanPath(path).c_str(), into));
}

int Volume::MakeDir(const std::string& path) {
  // The root is there.
  const std::string clean = CleanPath(path);
  return clean == "/" ? EEXIST : Result(siftfs_mkdir(volume_, clean.c_str(), 0755));
}

int Volume::MakeDirs(const std::string& path) {
  const std::string clean = CleanPath(path);
  for (size_t end = 1; end != std::string::npos && clean != "/";) {
    end = clean.find('/', end + 1);
    int error = MakeDir(clean.substr(0, end));
    if (error != 0 && error != EEXIST) return error;
  }
  return 0;
}

int Volume::RemoveDir(const std::string& path) {
  return Result(siftfs_rmdir(volume_, CleanPath(path).c_str()));
}

int Volume::RemoveFile(const std::string& path) {
  return Result(siftfs_unlink(volume_, CleanPath(path).c_str()));
}

int Volume::Link(const std::string& existing, const std::string& to) {
  return Result(siftfs_link(volume_, CleanPath(existing).c_str(), CleanPath(to).c_str()));
}

int Volume::Rename(const std::string& from, const std::string& to) {
  const std::string old_name = CleanPath(from), new_name = CleanPath(to);
  struct stat stat;
  int error = Stat(old_name, &stat);
  if (error != 0 || old_name == new_name) return error;
  const bool directory = S_ISDIR(stat.st_mode);
  if (ops_ == Ops::kCompound && !directory) {
    siftfs_name name = {old_name.c_str(), -1, new_name.c_str(), SIFTFS_REPLACE};
    return Result(siftfs_volume_publish(volume_, &name, 1, SIFTFS_ATOMIC));
  }
  error = Result(siftfs_rename(volume_, old_name.c_str(), new_name.c_str(), SIFTFS_REPLACE));
  return error != 0 || directory ? error : SyncDir(Above(new_name));
}

int Volume::SyncDir(const std::string& path) {
  return Result(siftfs_sync_dir(volume_, CleanPath(path).c_str()));
}

int Volume::List(const std::string& path, const std::function<void(const char* name)>& then) {
  auto* context = const_cast<std::function<void(const char*)>*>(&then);
  return Result(siftfs_list(volume_, CleanPath(path).c_str(), Call, context));
}

int Volume::Lock(const std::string& path) {
  const std::string clean = CleanPath(path);
  std::lock_guard<std::mutex> guard(lock_);
  if (locked_.count(clean) != 0) return EAGAIN;
  siftfs_file* file;
  int error = OpenOrCreate(clean, &file);
  if (error != 0) return error;
  error = Result(siftfs_flock(file, LOCK_EX | LOCK_NB));
  if (error == 0) {
    locked_[clean] = file;
  } else {
    siftfs_close(file);
  }
  return error;
}

void Volume::Unlock(const std::string& path) {
  std::lock_guard<std::mutex> guard(lock_);
  auto found = locked_.find(CleanPath(path));
  if (found == locked_.end()) return;
  siftfs_close(found->second);
  locked_.erase(found);
}

File::~File() { siftfs_close(file_); }

int File::Read(uint64_t offset, size_t n, char* into, size_t* count) const {
  ssize_t got = siftfs_pread(file_, into, n, offset);
  *count = got < 0 ? 0 : static_cast<size_t>(got);
  return got < 0 ? errno : 0;
}

int File::Write(uint64_t offset, const char* from, size_t n) {
  return siftfs_pwrite(file_, from, n, offset) < 0 ? errno : 0;
}

int File::Size(uint64_t* into) const {
  struct stat stat;
  int error = Volume::Result(siftfs_fstat(file_, &stat));
  if (error == 0) *into = static_cast<uint64_t>(stat.st_size);
  return error;
}

int File::Truncate(uint64_t size) { return Volume::Result(siftfs_ftruncate(file_, size)); }

int File::Sync() {
  if (volume_->ops() == Ops::kSingle) return Volume::Result(siftfs_fdatasync(file_));
  siftfs_ticket ticket;
  int error = Volume::Result(siftfs_file_stage(file_, &ticket));
  // As many tickets as there may be are open: a sync makes them durable, too.
  if (error == EAGAIN) return Volume::Result(siftfs_fsync(file_));
  return error != 0 ? error : Volume::Result(siftfs_volume_wait(volume_->raw(), ticket, -1));
}

int File::WriteClose(uint64_t offset, const char* from, size_t n) {
  siftfs_file* file = file_;
  file_ = nullptr;
  return Volume::Result(siftfs_write_close(volume_->raw(), file, from, n, offset));
}

}  // namespace siftfs
