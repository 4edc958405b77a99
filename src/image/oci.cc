#include "image/oci.h"

#include <nlohmann/json.hpp>

#include "base/text.h"

namespace sandbox {

namespace {

using Json = nlohmann::json;

// Deep nesting costs stack in any recursive reader; an image's JSON is five levels deep.
constexpr int kMaxNesting = 32;

Result<Json> parse_object(std::string_view text, std::string_view what) {
  if (text.size() > kMaxImageJson) return fail(Code::kLimit, "the {} is larger than 8 MiB", what);
  const auto shallow = [](int depth, Json::parse_event_t, Json&) {
    if (depth > kMaxNesting) throw std::length_error("nesting");
    return true;
  };
  try {
    Json json = Json::parse(text, shallow);
    if (!json.is_object()) return fail(Code::kInvalid, "the {} is not a JSON object", what);
    return json;
  } catch (const std::exception&) {
    return fail(Code::kInvalid, "the {} is not valid JSON", what);
  }
}

// Absent and null mean empty, as Go's encoder leaves them.
Result<std::string> string_member(const Json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end() || found->is_null()) return std::string();
  if (!found->is_string()) return fail(Code::kInvalid, "its member {} is not a string", name);
  std::string value = found->get<std::string>();
  if (value.find('\0') != std::string::npos)
    return fail(Code::kInvalid, "its member {} holds a NUL byte", name);
  return value;
}

Result<std::vector<std::string>> strings_member(const Json& object, const char* name) {
  std::vector<std::string> out;
  const auto found = object.find(name);
  if (found == object.end() || found->is_null()) return out;
  if (!found->is_array()) return fail(Code::kInvalid, "its member {} is not a list", name);
  for (const Json& item : *found) {
    if (!item.is_string()) return fail(Code::kInvalid, "its member {} holds a non-string", name);
    out.push_back(item.get<std::string>());
    if (out.back().find('\0') != std::string::npos)
      return fail(Code::kInvalid, "its member {} holds a NUL byte", name);
  }
  return out;
}

Result<Descriptor> parse_descriptor(const Json& json) {
  if (!json.is_object()) return fail(Code::kInvalid, "a descriptor is not a JSON object");
  Descriptor out;
  ASSIGN(out.media_type, string_member(json, "mediaType"));
  ASSIGN(const std::string digest, string_member(json, "digest"));
  ASSIGN(out.digest, Digest::parse(digest));
  const auto size = json.find("size");
  if (size == json.end() || !size->is_number_unsigned())
    return fail(Code::kInvalid, "the descriptor of {} has no size", digest);
  out.size = size->get<uint64_t>();
  return out;
}

Result<Manifest> read_manifest(const Json& json) {
  const auto version = json.find("schemaVersion");
  if (version == json.end() || !version->is_number_integer() || version->get<int64_t>() != 2) {
    return fail(Error{Code::kInvalid, "it is not of schema version 2",
                      "images pushed before 2017 must be pushed again with a current docker"});
  }
  const auto config = json.find("config");
  const auto layers = json.find("layers");
  if (config == json.end() || layers == json.end() || !layers->is_array())
    return fail(Code::kInvalid, "it names no configuration or no layers");
  if (layers->size() > kMaxLayers)
    return fail(Code::kLimit, "it has {} layers, more than {}", layers->size(), kMaxLayers);
  Manifest out;
  ASSIGN(out.config, parse_descriptor(*config));
  for (const Json& layer : *layers) {
    ASSIGN(Descriptor descriptor, parse_descriptor(layer));
    out.layers.push_back(std::move(descriptor));
  }
  return out;
}

Result<std::vector<Digest>> read_diff_ids(const Json& json) {
  std::vector<Digest> out;
  const auto rootfs = json.find("rootfs");
  if (rootfs == json.end() || !rootfs->is_object())
    return fail(Code::kInvalid, "it has no rootfs member; is this a container image?");
  ASSIGN(const std::vector<std::string> texts, strings_member(*rootfs, "diff_ids"));
  for (const std::string& text : texts) {
    ASSIGN(const Digest digest, Digest::parse(text));
    out.push_back(digest);
  }
  return out;
}

Result<ImageDescription> read_description(const Json& json) {
  ImageDescription out;
  ASSIGN(out.architecture, string_member(json, "architecture"));
  ASSIGN(out.os, string_member(json, "os"));
  ASSIGN(out.diff_ids, read_diff_ids(json));
  const auto config = json.find("config");
  if (config == json.end() || config->is_null()) return out;
  if (!config->is_object()) return fail(Code::kInvalid, "its member config is not an object");
  ASSIGN(out.config.entrypoint, strings_member(*config, "Entrypoint"));
  ASSIGN(out.config.cmd, strings_member(*config, "Cmd"));
  ASSIGN(out.config.env, strings_member(*config, "Env"));
  ASSIGN(out.config.workdir, string_member(*config, "WorkingDir"));
  ASSIGN(out.config.user, string_member(*config, "User"));
  return out;
}

}  // namespace

Result<Manifest> parse_manifest(std::string_view text) {
  ASSIGN(const Json json, parse_object(text, "image manifest"));
  auto manifest = read_manifest(json);
  if (!manifest) return fail(std::move(manifest.error()).while_doing("the image manifest"));
  return manifest;
}

Result<ImageDescription> parse_image_description(std::string_view text) {
  ASSIGN(const Json json, parse_object(text, "image configuration"));
  auto description = read_description(json);
  if (!description)
    return fail(std::move(description.error()).while_doing("the image configuration"));
  return description;
}

}  // namespace sandbox
