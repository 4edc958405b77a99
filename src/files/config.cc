#include <algorithm>
#include <nlohmann/json.hpp>

#include "files/service.h"

namespace sandbox::files {

namespace {

using Json = nlohmann::json;

constexpr size_t kMostShares = 64;

// nullptr when every key of `object` is one of `known`.
const std::string* unknown_key(const Json& object, std::initializer_list<std::string_view> known) {
  for (auto it = object.begin(); it != object.end(); ++it)
    if (std::find(known.begin(), known.end(), it.key()) == known.end()) return &it.key();
  return nullptr;
}

Result<uint32_t> number(const Json& object, const char* key) {
  const auto it = object.find(key);
  if (it == object.end() || !it->is_number_unsigned() || it->get<uint64_t>() > UINT32_MAX)
    return fail(Code::kInvalid, "configuration: {} must be a number", key);
  return it->get<uint32_t>();
}

Result<ShareConfig> parse_share(const Json& object) {
  if (!object.is_object()) return fail(Code::kInvalid, "configuration: a share is not an object");
  if (const auto* key = unknown_key(object, {"id", "path", "read_only"}))
    return fail(Code::kInvalid, "configuration: unknown key '{}' in a share", *key);
  ShareConfig share;
  ASSIGN(share.id, number(object, "id"));
  const auto path = object.find("path");
  if (path == object.end() || !path->is_string() || !path->get<std::string>().starts_with('/'))
    return fail(Code::kInvalid, "configuration: the path of a share must be absolute");
  share.path = path->get<std::string>();
  const auto read_only = object.find("read_only");
  if (read_only != object.end() && !read_only->is_boolean())
    return fail(Code::kInvalid, "configuration: read_only must be true or false");
  share.read_only = read_only != object.end() && read_only->get<bool>();
  return share;
}

}  // namespace

Result<Config> parse_config(std::string_view json) {
  const Json object = Json::parse(json, nullptr, false);
  if (!object.is_object()) return fail(Code::kInvalid, "the configuration is not a JSON object");
  if (const auto* key = unknown_key(object, {"uid", "gid", "shares"}))
    return fail(Code::kInvalid, "configuration: unknown key '{}'", *key);
  Config config;
  ASSIGN(config.uid, number(object, "uid"));
  ASSIGN(config.gid, number(object, "gid"));
  const auto shares = object.find("shares");
  if (shares == object.end() || !shares->is_array() || shares->size() > kMostShares)
    return fail(Code::kInvalid, "configuration: shares must be a list of at most {}", kMostShares);
  for (const Json& entry : *shares) {
    ASSIGN(ShareConfig share, parse_share(entry));
    for (const ShareConfig& other : config.shares)
      if (other.id == share.id)
        return fail(Code::kInvalid, "configuration: two shares have the number {}", share.id);
    config.shares.push_back(std::move(share));
  }
  return config;
}

}  // namespace sandbox::files
