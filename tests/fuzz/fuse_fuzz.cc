// fuzz-libs: sandbox_files
// A guest kernel that sends anything: requests in sequence, to a share that is rebuilt for each
// input. Nothing may be made beside the share, and each reply must be whole.
//
// The input is a list of {u8 opcode, u8 node, u8 handle, u8 length, body}: numbers that the server
// gave out are small, so that the fuzzer can name them. A handle that is not 0 replaces the first
// eight bytes of the body, where most have theirs.

#include <fcntl.h>
#include <linux/fuse.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "files/server.h"

namespace {

namespace fs = std::filesystem;
using sandbox::Bytes;
using sandbox::ByteView;

// A folder of this process, removed with the object that made it.
class Folder {
 public:
  Folder() {
    std::string pattern = (fs::temp_directory_path() / "fuse-fuzz-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  [[nodiscard]] const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

const fs::path& base() {
  static const Folder folder;
  return folder.path();
}

std::unique_ptr<sandbox::files::Server> fresh_server(bool read_only) {
  std::error_code ignored;
  const fs::path share = base() / "share";
  fs::permissions(share, fs::perms::owner_all, ignored);
  fs::remove_all(share, ignored);
  fs::create_directories(share / "d", ignored);
  std::ofstream(share / "f") << "content";
  fs::create_symlink("../secret", share / "l", ignored);
  std::ofstream(base() / "secret") << "secret";
  sandbox::files::TreeOptions options;
  options.read_only = read_only;
  options.cached_fds = 4;
  options.open_handles = 8;
  options.nodes = 64;
  auto tree = sandbox::files::Tree::open(share.string(), options);
  if (!tree) std::abort();
  return std::make_unique<sandbox::files::Server>(std::move(*tree));
}

void send(sandbox::files::Server& server, uint32_t opcode, uint64_t node, ByteView body) {
  fuse_in_header header{};
  header.len = static_cast<uint32_t>(sizeof header + body.size());
  header.opcode = opcode;
  header.unique = 5;
  header.nodeid = node;
  Bytes request(sizeof header);
  std::memcpy(request.data(), &header, sizeof header);
  request.insert(request.end(), body.begin(), body.end());
  Bytes out;
  if (!server.handle(request, out)) std::abort();
  if (out.empty()) return;
  fuse_out_header reply{};
  std::memcpy(&reply, out.data(), std::min(out.size(), sizeof reply));
  if (reply.len != out.size() || reply.unique != 5 || reply.error > 0 || reply.error < -4095)
    std::abort();
}

void check_nothing_escaped() {
  size_t entries = 0;
  for (const auto& entry : fs::directory_iterator(base())) {
    (void)entry;
    ++entries;
  }
  std::string secret;
  std::ifstream(base() / "secret") >> secret;
  if (entries != 2 || secret != "secret") std::abort();
}

// Sizes that would only fill the disk are no finding: the third byte of a 64-bit size stays, what
// is above goes.
void tame_sizes(uint32_t opcode, Bytes& body) {
  const auto tame = [&body](size_t at) {
    if (body.size() < at + 8) return;
    std::fill(body.begin() + static_cast<ptrdiff_t>(at) + 3,
              body.begin() + static_cast<ptrdiff_t>(at) + 7, 0);
  };
  if (opcode == FUSE_FALLOCATE) {
    tame(offsetof(fuse_fallocate_in, offset));
    tame(offsetof(fuse_fallocate_in, length));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ::umask(0);
  if (size < 1) return 0;
  auto server = fresh_server((data[0] & 1) != 0);
  fuse_init_in init{};
  init.major = 7;
  init.minor = 40;
  Bytes body(sizeof init);
  std::memcpy(body.data(), &init, sizeof init);
  send(*server, FUSE_INIT, 0, body);
  sandbox::ByteReader reader(ByteView(data, size).subspan(1));
  std::vector<sandbox::files::Invalidation> changes;
  while (reader.remaining() >= 4) {
    const uint32_t opcode = reader.u8();
    const uint64_t node = reader.u8();
    const uint8_t handle = reader.u8();
    const size_t length = std::min<size_t>(reader.u8(), reader.remaining());
    const ByteView bytes = reader.take(length);
    body.assign(bytes.begin(), bytes.end());
    if (handle != 0 && body.size() >= 8) {
      std::fill(body.begin(), body.begin() + 8, 0);
      body[0] = handle;
    }
    tame_sizes(opcode, body);
    send(*server, opcode, node, body);
    server->tree().read_changes(changes);
  }
  check_nothing_escaped();
  return 0;
}
