#pragma once
// Archives made byte by byte, so that a test can also write what no tar program would.

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace sandbox::test {

// One POSIX ustar header (IEEE 1003.1, pax interchange format) and what follows it.
struct TarEntry {
  std::string name;
  char type = '0';
  std::string content = {};
  std::string link = {};
  uint32_t mode = 0644;
  uint32_t uid = 0;
  uint32_t gid = 0;
  uint64_t mtime = 0;
  uint32_t major = 0;
  uint32_t minor = 0;
  std::vector<std::pair<std::string, std::string>> pax =
      {};                              // records of an extended header before it
  uint64_t claimed_size = UINT64_MAX;  // in the header, instead of the content's
  bool base256 = false;                // numbers in GNU's binary form
  std::string raw_magic = {};          // instead of "ustar\0" "00"
};

class TarBuilder {
 public:
  TarBuilder& add(const TarEntry& entry) {
    if (!entry.pax.empty()) {
      std::string records;
      for (const auto& [key, value] : entry.pax) records += pax_record(key, value);
      TarEntry header{.name = "pax", .type = 'x', .content = records};
      add(header);
    }
    bytes_ += header(entry);
    padded(entry.content);
    return *this;
  }
  TarBuilder& file(std::string name, std::string content) {
    return add({.name = std::move(name), .content = std::move(content)});
  }
  TarBuilder& folder(std::string name, uint32_t mode = 0755) {
    return add({.name = std::move(name), .type = '5', .mode = mode});
  }
  TarBuilder& symlink(std::string name, std::string target) {
    return add({.name = std::move(name), .type = '2', .link = std::move(target), .mode = 0777});
  }
  TarBuilder& hardlink(std::string name, std::string target) {
    return add({.name = std::move(name), .type = '1', .link = std::move(target)});
  }
  // GNU's long name: a pseudo entry of type L (name) or K (link target) before the real one.
  TarBuilder& gnu_long(char type, const std::string& text) {
    return add(
        {.name = "././@LongLink", .type = type, .content = text + '\0', .raw_magic = "ustar  "});
  }
  TarBuilder& raw(std::string_view bytes) {
    bytes_ += bytes;
    return *this;
  }
  [[nodiscard]] std::string finish() const { return bytes_ + std::string(1024, '\0'); }
  [[nodiscard]] std::string unfinished() const { return bytes_; }

  static std::string pax_record(const std::string& key, const std::string& value) {
    const size_t rest = key.size() + value.size() + 3;
    size_t length = rest;
    while (std::to_string(length).size() + rest != length)
      length = std::to_string(length).size() + rest;
    return std::to_string(length) + " " + key + "=" + value + "\n";
  }

 private:
  static void put(std::string& block, size_t at, size_t size, std::string_view text) {
    std::memcpy(block.data() + at, text.data(), std::min(size, text.size()));
  }
  static void number(std::string& block, size_t at, size_t size, uint64_t value, bool base256) {
    if (base256) {
      for (size_t i = 0; i < size; ++i)
        block[at + size - 1 - i] = i < 8 ? static_cast<char>(value >> (8 * i)) : '\0';
      block[at] = static_cast<char>(0x80);
      return;
    }
    for (size_t i = size - 1; i-- > 0;) {
      block[at + i] = static_cast<char>('0' + (value & 7));
      value >>= 3;
    }
  }
  static std::string header(const TarEntry& e) {
    std::string block(512, '\0');
    put(block, 0, 100, e.name);
    number(block, 100, 8, e.mode, false);
    number(block, 108, 8, e.uid, e.base256);
    number(block, 116, 8, e.gid, e.base256);
    number(block, 124, 12, e.claimed_size == UINT64_MAX ? e.content.size() : e.claimed_size,
           e.base256);
    number(block, 136, 12, e.mtime, e.base256);
    block[156] = e.type;
    put(block, 157, 100, e.link);
    put(block, 257, 8, e.raw_magic.empty() ? std::string_view("ustar\00000", 8) : e.raw_magic);
    number(block, 329, 8, e.major, false);
    number(block, 337, 8, e.minor, false);
    put(block, 148, 8, "        ");
    uint32_t sum = 0;
    for (const char c : block) sum += static_cast<uint8_t>(c);
    number(block, 148, 7, sum, false);
    return block;
  }
  void padded(const std::string& content) {
    bytes_ += content;
    bytes_.append((512 - content.size() % 512) % 512, '\0');
  }
  std::string bytes_;
};

}  // namespace sandbox::test
