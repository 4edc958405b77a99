#include "machine/known_digests.h"

#include <fcntl.h>
#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/clock.h"
#include "base/fd.h"
#include "base/file.h"
#include "base/text.h"

namespace sandbox {

namespace {

constexpr int64_t kSettledNs = 2'000'000'000;
constexpr size_t kSparseBlock = 64U << 10;
constexpr const char* kSparsePrefix = "sparse:";

int64_t nanoseconds(const timespec& t) {
  return t.tv_sec * 1'000'000'000LL + t.tv_nsec;
}

std::string identity_of(const struct stat& st) {
  return fmt::format("{}:{}:{}:{}:{}", st.st_dev, st.st_ino, st.st_size, nanoseconds(st.st_mtim),
                     nanoseconds(st.st_ctim));
}

bool settled(const struct stat& st) {
  const int64_t changed = std::max(nanoseconds(st.st_mtim), nanoseconds(st.st_ctim));
  return wall_now_ns() - changed > kSettledNs;
}

}  // namespace

std::string sha256_hex(ByteView bytes) {
  std::array<uint8_t, crypto_hash_sha256_BYTES> digest{};
  crypto_hash_sha256(digest.data(), bytes.data(), bytes.size());
  return to_hex(digest);
}

Result<std::string> sha256_of_file(int fd) {
  crypto_hash_sha256_state state;
  crypto_hash_sha256_init(&state);
  Bytes buffer(1 << 20);
  off_t at = 0;
  for (;;) {
    const ssize_t n = ::pread(fd, buffer.data(), buffer.size(), at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_errno(errno, "read");
    if (n == 0) break;
    crypto_hash_sha256_update(&state, buffer.data(), static_cast<unsigned long long>(n));
    at += n;
  }
  std::array<uint8_t, crypto_hash_sha256_BYTES> digest{};
  crypto_hash_sha256_final(&state, digest.data());
  return to_hex(digest);
}

Result<std::string> sparse_sha256_of_file(int fd) {
  struct stat st {};
  if (::fstat(fd, &st) < 0) return fail_errno(errno, "fstat");
  crypto_hash_sha256_state state;
  crypto_hash_sha256_init(&state);
  const auto add_number = [&state](uint64_t number) {
    ByteWriter out;
    out.le64(number);
    crypto_hash_sha256_update(&state, out.view().data(), out.size());
  };
  Bytes block(kSparseBlock);
  off_t at = 0;
  while ((at = ::lseek(fd, at, SEEK_DATA)) >= 0) {
    at -= at % static_cast<off_t>(kSparseBlock);
    const ssize_t n = ::pread(fd, block.data(), block.size(), at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_errno(errno, "read");
    if (n == 0) break;
    const auto size = static_cast<size_t>(n);
    if (block[0] != 0 || std::memcmp(block.data(), block.data() + 1, size - 1) != 0) {
      add_number(static_cast<uint64_t>(at) / kSparseBlock);
      crypto_hash_sha256_update(&state, block.data(), size);
    }
    at += n;
  }
  if (at < 0 && errno != ENXIO) return fail_errno(errno, "SEEK_DATA");
  add_number(static_cast<uint64_t>(st.st_size));
  std::array<uint8_t, crypto_hash_sha256_BYTES> digest{};
  crypto_hash_sha256_final(&state, digest.data());
  return to_hex(digest);
}

KnownDigests KnownDigests::load(std::string path) {
  KnownDigests memory(std::move(path));
  const auto text = read_file(memory.path_, 1 << 20);
  if (!text) return memory;
  for (const std::string_view line : split(*text, '\n')) {
    // identity, digest, path: the path comes last because it may hold spaces.
    const size_t first = line.find(' ');
    const size_t second = first == line.npos ? line.npos : line.find(' ', first + 1);
    if (second == line.npos || second - first - 1 != 64) continue;
    memory.known_[std::string(line.substr(second + 1))] = {std::string(line.substr(0, first)),
                                                           std::string(line.substr(first + 1, 64))};
  }
  return memory;
}

Result<std::string> KnownDigests::of(const std::string& path) {
  ASSIGN(const Fd fd, open_file(path, O_RDONLY));
  return lookup(fd.get(), path, path, sha256_of_file);
}

Result<std::string> KnownDigests::of_sparse(int fd, const std::string& path) {
  return lookup(fd, path, kSparsePrefix + path, sparse_sha256_of_file);
}

Status KnownDigests::learn_sparse(int fd, const std::string& path, const std::string& sha256) {
  struct stat st {};
  if (::fstat(fd, &st) < 0) return fail_errno(errno, path);
  known_[kSparsePrefix + path] = {identity_of(st), sha256};
  changed_ = true;
  return {};
}

Result<std::string> KnownDigests::lookup(int fd, const std::string& path, const std::string& name,
                                         Hash hash) {
  struct stat st {};
  if (::fstat(fd, &st) < 0) return fail_errno(errno, path);
  const std::string identity = identity_of(st);
  const auto known = known_.find(name);
  if (known != known_.end() && known->second.identity == identity) return known->second.sha256;
  auto digest = hash(fd);
  if (!digest) return fail(std::move(digest.error()).while_doing(path));
  if (settled(st) && path.find('\n') == std::string::npos) {
    known_[name] = {identity, *digest};
    changed_ = true;
  }
  return digest;
}

Status KnownDigests::save() {
  if (!changed_) return {};
  std::string text;
  for (const auto& [path, known] : known_)
    text += fmt::format("{} {} {}\n", known.identity, known.sha256, path);
  TRY(write_file_atomic(path_, text));
  changed_ = false;
  return {};
}

}  // namespace sandbox
