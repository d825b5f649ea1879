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

// Before the address of a server whose volume's files are at a target.
constexpr char kDirect[] = "direct:";

// Is it where a server listens, and no path of a file?
bool IsServed(const std::string& address) {
  return address.rfind(kDirect, 0) == 0 || address.rfind("unix:", 0) == 0 || address.rfind("tcp:", 0) == 0 ||
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
  Volume* opened;
  int error = Connect(address, ops, &opened);
  if (error != 0) return error;
  into->reset(opened, [key](Volume* volume) { Close(key, volume); });
  registry().open[key] = *into;
  return 0;
}

// The one place where a volume is opened.
int Volume::Connect(const std::string& address, Ops ops, Volume** into) {
  if (address.rfind(kDirect, 0) == 0) {
    siftfs_direct* direct = siftfs_direct_connect(address.c_str() + std::strlen(kDirect), nullptr);
    if (direct == nullptr) return errno;
    *into = new Volume(siftfs_direct_volume(direct), direct, ops);
    return 0;
  }
  siftfs_volume* raw = IsServed(address) ? siftfs_volume_connect(address.c_str(), nullptr)
                                         : siftfs_volume_open(address.c_str());
  if (raw == nullptr) return errno;
  *into = new Volume(raw, nullptr, ops);
  return 0;
}

// What it has changed is durable then.
int Volume::End() {
  if (direct_ == nullptr) return Result(siftfs_volume_close(volume_));
  int error = Sync();
  siftfs_direct_disconnect(direct_);
  return error;
}

void Volume::Close(const std::string& key, Volume* volume) {
  std::unique_lock<std::mutex> guard(registry().lock);
  for (const auto& locked : volume->locked_) siftfs_close(locked.second);
  int error = volume->End();
  if (error != 0) {
    // What was durable is there at the next opening, which is all that was promised.
    std::fprintf(stderr, "siftfs: %s was not closed in order: %s\n", key.c_str(),
                 std::strerror(error));
  }
  delete volume;
  registry().open.erase(key);
  registry().closed.notify_all();
}

template <typename Raw>
int Volume::Opened(Raw* file, std::unique_ptr<File>* into) {
  if (file == nullptr) return errno;
  into->reset(new File(shared_from_this(), file));
  return 0;
}

int Volume::OpenFile(const std::string& path, std::unique_ptr<File>* into) {
  const std::string clean = CleanPath(path);
  if (direct_ == nullptr) return Opened(siftfs_open(volume_, clean.c_str(), O_RDWR, 0), into);
  return Opened(siftfs_direct_open(direct_, clean.c_str(), O_RDONLY, 0), into);
}

template <typename Raw>
int Volume::Either(const std::function<Raw*(int flags)>& open, Raw** into) {
  // Another thread may create or remove it between the two calls.
  for (;;) {
    *into = open(O_RDWR | O_CREAT);
    if (*into != nullptr) return 0;
    if (errno != EEXIST) return errno;
    *into = open(O_RDWR);
    if (*into != nullptr) return 0;
    if (errno != ENOENT) return errno;
  }
}

int Volume::OpenOrCreate(const std::string& clean, siftfs_file** into) {
  return Either<siftfs_file>(
      [&](int flags) { return siftfs_open(volume_, clean.c_str(), flags, 0644); }, into);
}

int Volume::OpenOrCreate(const std::string& clean, siftfs_direct_file** into) {
  return Either<siftfs_direct_file>(
      [&](int flags) { return siftfs_direct_open(direct_, clean.c_str(), flags, 0644); }, into);
}

int Volume::OpenOrCreate(const std::string& path, std::unique_ptr<File>* into) {
  const std::string clean = CleanPath(path);
  if (direct_ != nullptr) {
    siftfs_direct_file* file;
    int error = OpenOrCreate(clean, &file);
    return error != 0 ? error : Opened(file, into);
  }
  siftfs_file* file;
  int error = OpenOrCreate(clean, &file);
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

File::~File() {
  siftfs_close(file_);
  siftfs_direct_close(direct_);
}

int File::Read(uint64_t offset, size_t n, char* into, size_t* count) const {
  ssize_t got = direct_ != nullptr ? siftfs_direct_pread(direct_, into, n, offset)
                                   : siftfs_pread(file_, into, n, offset);
  *count = got < 0 ? 0 : static_cast<size_t>(got);
  return got < 0 ? errno : 0;
}

int File::Write(uint64_t offset, const char* from, size_t n) {
  ssize_t put = direct_ != nullptr ? siftfs_direct_pwrite(direct_, from, n, offset, 0)
                                   : siftfs_pwrite(file_, from, n, offset);
  return put < 0 ? errno : 0;
}

int File::WriteDurable(uint64_t offset, const char* from, size_t n) {
  if (direct_ != nullptr) return siftfs_direct_pwrite(direct_, from, n, offset, 1) < 0 ? errno : 0;
  int error = Write(offset, from, n);
  return error != 0 ? error : Sync();
}

int File::Size(uint64_t* into) const {
  if (direct_ != nullptr) return Volume::Result(siftfs_direct_size(direct_, into));
  struct stat stat;
  int error = Volume::Result(siftfs_fstat(file_, &stat));
  if (error == 0) *into = static_cast<uint64_t>(stat.st_size);
  return error;
}

int File::Truncate(uint64_t size) {
  return Volume::Result(direct_ != nullptr ? siftfs_direct_ftruncate(direct_, size)
                                           : siftfs_ftruncate(file_, size));
}

int File::Sync() {
  // Its name, too.
  if (direct_ != nullptr) return Volume::Result(siftfs_direct_fsync(direct_));
  if (volume_->ops() == Ops::kSingle) return Volume::Result(siftfs_fdatasync(file_));
  siftfs_ticket ticket;
  int error = Volume::Result(siftfs_file_stage(file_, &ticket));
  // As many tickets as there may be are open: a sync makes them durable, too.
  if (error == EAGAIN) return Volume::Result(siftfs_fsync(file_));
  return error != 0 ? error : Volume::Result(siftfs_volume_wait(volume_->raw(), ticket, -1));
}

int File::WriteClose(uint64_t offset, const char* from, size_t n) {
  if (direct_ != nullptr) {
    int error = Write(offset, from, n);
    siftfs_direct_close(direct_);
    direct_ = nullptr;
    return error;
  }
  siftfs_file* file = file_;
  file_ = nullptr;
  return Volume::Result(siftfs_write_close(volume_->raw(), file, from, n, offset));
}

}  // namespace siftfs
