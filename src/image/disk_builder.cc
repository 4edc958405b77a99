#include "image/disk_builder.h"

#include <malloc.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <optional>

#include "base/bytes.h"
#include "base/confine.h"
#include "base/process.h"
#include "base/socket.h"
#include "base/text.h"
#include "image/disk_writer.h"
#include "image/layer.h"

namespace sandbox {

namespace {

// What the child says, one message each on a SOCK_SEQPACKET: 'p' and two be64 (done, total); 's'
// and a step's text; 'd' when the disk is ready; 'e', a code as u8, and the message.
constexpr size_t kMaxMessage = 4096;
constexpr int kCancelPollMs = 100;
// The tree of kMaxEntries entries with long names stays below this. Sanitizers reserve terabytes
// and go without.
[[maybe_unused]] constexpr rlim_t kMemoryLimit = rlim_t{4} << 30;

class MessageProgress final : public Progress {
 public:
  explicit MessageProgress(int fd) : fd_(fd) {}
  void step(std::string_view what) override {
    ByteWriter message;
    message.u8('s');
    message.text(what.substr(0, kMaxMessage - 1));
    send(message);
  }
  void advance(uint64_t done, uint64_t total) override {
    ByteWriter message;
    message.u8('p');
    message.be64(done);
    message.be64(total);
    send(message);
  }
  void finish(const Status& status) {
    ByteWriter message;
    if (status) {
      message.u8('d');
    } else {
      message.u8('e');
      message.u8(static_cast<uint8_t>(status.error().code));
      message.text(std::string_view(status.error().message).substr(0, 1500));
      message.u8('\n');
      message.text(std::string_view(status.error().hint).substr(0, 500));
    }
    send(message);
  }

 private:
  // A parent that is gone takes this process with it, so there is nobody to report a failure to.
  void send(const ByteWriter& message) {
    (void)!::send(fd_, message.view().data(), message.size(), MSG_NOSIGNAL);
  }
  int fd_;
};

Status confine_builder() {
  confine::forbid_core_files();
  // A thread's own arena reads a file of /proc when it shrinks (glibc, check_may_shrink_heap); the
  // common one does not.
  (void)::mallopt(M_ARENA_MAX, 1);
#ifndef SANDBOX_SANITIZED
  const rlimit memory{kMemoryLimit, kMemoryLimit};
  if (::setrlimit(RLIMIT_AS, &memory) < 0) return fail_errno(errno, "setrlimit");
#endif
  TRY(confine::drop_privileges());
  // A kernel without Landlock still has the system call filter below, which has no call that opens
  // anything.
  if (auto status = confine::landlock_none(false);
      !status && status.error().code != Code::kUnavailable)
    return status;
  // The four ids and prctl: libext2fs asks whether it may look at the environment.
  return confine::seccomp_allow({"clone", "clone3", "fallocate", "fstat", "fstatfs", "fsync",
                                 "getegid", "geteuid", "getgid", "getuid", "lseek", "newfstatat",
                                 "prctl", "pread64", "pwrite64", "sendto", "sync_file_range"});
}

Status build_in_child(const DiskJob& job, MessageProgress& progress) {
  ASSIGN(const auto disk,
         DiskWriter::create(job.disk_path, job.seed, {job.disk_bytes, kKeepFreeBytes}));
  prepare_to_read_layers();
  TRY(confine_builder());
  FileTree tree;
  LayerBudget budget;
  budget.uncompressed_left = job.disk_bytes;
  for (const DiskLayer& layer : job.layers) budget.blob_total += layer.descriptor.size;
  for (size_t i = 0; i < job.layers.size(); ++i) {
    const DiskLayer& layer = job.layers[i];
    const LayerInput input{layer.blob.get(), layer.descriptor, layer.diff_id,
                           fmt::format("layer {} of {} ({})", i + 1, job.layers.size(),
                                       layer.descriptor.digest.text().substr(0, 19))};
    TRY(read_layer(input, tree, *disk, budget, progress));
  }
  progress.step("writing the disk's directories");
  return disk->finish(tree);
}

[[noreturn]] void child_main(const DiskJob& job, int report) {
  MessageProgress progress(report);
  Status status = fail(Code::kInternal, "unreachable");
  try {
    status = build_in_child(job, progress);
  } catch (const std::bad_alloc&) {
    status = fail(Code::kLimit, "the image's file tree takes too much memory");
  } catch (const std::exception& error) {
    status = fail(Code::kInternal, "building the disk: {}", error.what());
  }
  progress.finish(status);
  ::_exit(status ? 0 : 1);
}

// The child may have been taken over: nothing it says is believed beyond its form.
std::optional<Status> handle_message(ByteView bytes, Progress& progress) {
  ByteReader reader(bytes);
  switch (reader.u8()) {
    case 'p': {
      const uint64_t done = reader.be64();
      const uint64_t total = reader.be64();
      if (reader.ok()) progress.advance(std::min(done, total), total);
      return std::nullopt;
    }
    case 's':
      progress.step(escape_terminal(as_text(reader.rest())));
      return std::nullopt;
    case 'd':
      return Status{};
    case 'e': {
      const auto code = std::min(reader.u8(), static_cast<uint8_t>(Code::kInternal));
      const std::string text = escape_terminal(as_text(reader.rest()), true);
      const size_t line = text.find('\n');
      Error error{static_cast<Code>(code), text.substr(0, line)};
      if (line != std::string::npos) error.hint = escape_terminal(text.substr(line + 1));
      return Status(fail(std::move(error)));
    }
    default:
      return std::nullopt;
  }
}

class BuilderProcess {
 public:
  BuilderProcess(pid_t pid, Fd messages) : pid_(pid), messages_(std::move(messages)) {}
  ~BuilderProcess() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      wait();
    }
  }
  BuilderProcess(const BuilderProcess&) = delete;
  BuilderProcess& operator=(const BuilderProcess&) = delete;

  Status watch(Progress& progress) {
    std::array<uint8_t, kMaxMessage> buffer{};
    std::optional<Status> outcome;
    for (;;) {
      if (progress.cancelled()) return fail(Code::kCancelled, "cancelled");
      pollfd poll_fd{messages_.get(), POLLIN, 0};
      if (::poll(&poll_fd, 1, kCancelPollMs) <= 0) continue;
      const ssize_t n = ::recv(messages_.get(), buffer.data(), buffer.size(), 0);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) break;
      auto said = handle_message(ByteView(buffer).first(static_cast<size_t>(n)), progress);
      if (said) outcome = std::move(said);
    }
    const int status = wait();
    if (outcome && WIFEXITED(status) && (WEXITSTATUS(status) == 0) == outcome->has_value())
      return std::move(*outcome);
    return fail(Code::kInvalid, "unpacking the image's layers ended with {}",
                describe_wait_status(status));
  }

 private:
  int wait() {
    int status = 0;
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
    return status;
  }
  pid_t pid_;
  Fd messages_;
};

Status check_free_space(const DiskJob& job) {
  uint64_t needed = kKeepFreeBytes;
  for (const DiskLayer& layer : job.layers) {
    if (layer.descriptor.size > job.disk_bytes)
      return fail(Code::kLimit, "layer {} claims {} bytes, more than the disk holds",
                  layer.descriptor.digest.text(), layer.descriptor.size);
    needed += layer.descriptor.size;
  }
  const std::string folder = std::filesystem::absolute(job.disk_path).parent_path().string();
  struct statvfs st {};
  if (::statvfs(folder.c_str(), &st) < 0) return fail_errno(errno, folder);
  const uint64_t free_bytes = static_cast<uint64_t>(st.f_bavail) * st.f_frsize;
  if (free_bytes >= needed) return {};
  return fail(Error{Code::kLimit,
                    fmt::format("{} has {} free, the image needs at least {}", folder,
                                format_size(free_bytes), format_size(needed)),
                    "free some space, or set SANDBOX_HOME to a larger disk"});
}

Status build_into_file(const DiskJob& job, Progress& progress) {
  ASSIGN(auto sockets, socket_pair(SocketKind::kSeqPacket));
  const pid_t pid = ::fork();
  if (pid < 0) return fail_errno(errno, "fork");
  if (pid == 0) child_main(job, sockets.second.get());
  sockets.second.reset();
  BuilderProcess builder(pid, std::move(sockets.first));
  return builder.watch(progress);
}

}  // namespace

Status build_disk(const DiskJob& job, Progress& progress) {
  TRY(check_free_space(job));
  progress.step("unpacking the layers");
  Status status = build_into_file(job, progress);
  if (!status) ::unlink(job.disk_path.c_str());
  return status;
}

}  // namespace sandbox
