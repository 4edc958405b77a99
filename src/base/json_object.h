#pragma once
// Strict reading of one JSON object of our own processes: every member that is asked for must be
// there and of its type, and there may be no other.
//
//   ASSIGN(const json value, parse_json_object(text));
//   JsonObject in(value);
//   const std::string op = in.text("op");
//   const auto port = in.number("port", 1, 65535);
//   TRY(in.finish());                                    // names the first member that was wrong

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/text.h"

namespace sandbox {

// Reads members of one object and remembers the first thing that is wrong with it.
class JsonObject {
 public:
  explicit JsonObject(const nlohmann::json& value) : value_(value) {}

  std::string text(const char* key) {
    const nlohmann::json* v = find(key);
    if (v == nullptr) return {};
    if (!v->is_string()) return wrong(key, "is not a text"), std::string();
    return v->get<std::string>();
  }
  uint64_t number(const char* key, uint64_t low, uint64_t high) {
    const nlohmann::json* v = find(key);
    if (v == nullptr) return low;
    if (!v->is_number_unsigned() || *v < low || *v > high)
      return wrong(key, fmt::format("is not a number from {} to {}", low, high)), low;
    return v->get<uint64_t>();
  }
  bool flag(const char* key) {
    const nlohmann::json* v = find(key);
    if (v == nullptr) return false;
    if (!v->is_boolean()) return wrong(key, "is neither true nor false"), false;
    return v->get<bool>();
  }
  std::vector<std::string> texts(const char* key) {
    std::vector<std::string> out;
    const nlohmann::json* v = find(key);
    if (v == nullptr) return out;
    const bool good = v->is_array() && std::ranges::all_of(*v, &nlohmann::json::is_string);
    if (!good) return wrong(key, "is not a list of texts"), out;
    return v->get<std::vector<std::string>>();
  }
  template <class T>
  T parsed(const char* key, const char* what) {
    const auto out = T::parse(text(key));
    if (!out) wrong(key, fmt::format("is not {}", what));
    return out.value_or(T{});
  }
  // Null where the member is missing, which is allowed.
  const nlohmann::json* optional(const char* key) {
    known_.emplace_back(key);
    const auto it = value_.find(key);
    return it == value_.end() ? nullptr : &*it;
  }
  // To be called last: everything asked for was there and right, and there was nothing else.
  Status finish() {
    for (const auto& [key, unused] : value_.items())
      if (std::ranges::find(known_, key) == known_.end()) wrong(key.c_str(), "is not known");
    if (!error_.empty()) return fail(Code::kInvalid, "{}", error_);
    return {};
  }

 private:
  const nlohmann::json* find(const char* key) {
    known_.emplace_back(key);
    const auto it = value_.find(key);
    if (it == value_.end()) {
      wrong(key, "is missing");
      return nullptr;
    }
    return &*it;
  }
  void wrong(const char* key, std::string_view what) {
    if (error_.empty()) error_ = fmt::format("'{}' {}", escape_terminal(key), what);
  }

  const nlohmann::json& value_;
  std::vector<std::string> known_;
  std::string error_;
};

inline Result<nlohmann::json> parse_json_object(std::string_view text) {
  nlohmann::json value = nlohmann::json::parse(text, nullptr, false);
  if (!value.is_object()) return fail(Code::kInvalid, "not a JSON object");
  return value;
}

}  // namespace sandbox
