#include "base/pem.h"

#include <algorithm>

namespace sandbox {

namespace {

constexpr std::string_view kBegin = "-----BEGIN CERTIFICATE-----";
constexpr std::string_view kEnd = "-----END CERTIFICATE-----";
constexpr size_t kLine = 64;

bool is_base64(char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '+' ||
         c == '/' || c == '=';
}

bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

// The block around a body, or nothing where the body is none.
std::string block_of(std::string_view body) {
  std::string digits;
  std::ranges::copy_if(body, std::back_inserter(digits), [](char c) { return !is_space(c); });
  if (digits.empty() || digits.size() % 4 != 0 || !std::ranges::all_of(digits, is_base64))
    return {};
  std::string out(kBegin);
  for (size_t at = 0; at < digits.size(); at += kLine) out.append("\n").append(digits, at, kLine);
  return out.append("\n").append(kEnd).append("\n");
}

}  // namespace

std::vector<std::string> pem_certificates(std::string_view text) {
  std::vector<std::string> out;
  while (true) {
    const size_t begin = text.find(kBegin);
    if (begin == std::string_view::npos) return out;
    text.remove_prefix(begin + kBegin.size());
    const size_t end = text.find("-----");
    if (end == std::string_view::npos) return out;
    if (!text.substr(end).starts_with(kEnd)) continue;
    if (std::string block = block_of(text.substr(0, end)); !block.empty())
      out.push_back(std::move(block));
    text.remove_prefix(end + kEnd.size());
  }
}

}  // namespace sandbox
