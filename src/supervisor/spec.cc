#include "supervisor/spec.h"

#include <nlohmann/json.hpp>

namespace sandbox {

namespace {

using nlohmann::json;

json share_to_json(const ShareSpec& share) {
  return {{"host_path", share.host_path},
          {"guest_path", share.guest_path},
          {"read_only", share.read_only},
          {"single_file", share.single_file}};
}

ShareSpec share_from_json(const json& j) {
  return {j.at("host_path"), j.at("guest_path"), j.at("read_only"), j.at("single_file")};
}

json proxy_to_json(const ProxySpec& proxy) {
  return {{"host", proxy.host},
          {"port", proxy.port},
          {"addresses", proxy.addresses},
          {"authorization", proxy.authorization},
          {"no_proxy", proxy.no_proxy}};
}

ProxySpec proxy_from_json(const json& j) {
  return {j.at("host"), j.at("port"), j.at("addresses"), j.at("authorization"), j.at("no_proxy")};
}

}  // namespace

// Paths need not be UTF-8; JSON must be. Such paths are refused by the command line before they
// come here.
std::string to_json(const SandboxSpec& spec) {
  json shares = json::array();
  for (const ShareSpec& share : spec.shares) shares.push_back(share_to_json(share));
  json j = {{"name", spec.name},
            {"run_dir", spec.run_dir},
            {"image", spec.image},
            {"command", spec.command},
            {"qemu", {{"binary", spec.qemu.binary}, {"binds", spec.qemu.binds}}},
            {"memory_mib", spec.shape.memory_mib},
            {"cpus", spec.shape.cpus},
            {"kvm", spec.shape.accel == Accel::kKvm},
            {"boot_key", spec.boot_key},
            {"disk_bytes", spec.disk_bytes},
            {"allow", spec.allow},
            {"deny", spec.deny},
            {"shares", shares},
            {"workspace", spec.workspace},
            {"profile", static_cast<int>(spec.profile)},
            {"ask", spec.ask},
            {"publish", spec.publish},
            {"mtu", spec.mtu},
            {"host_roots", spec.host_roots}};
  if (spec.proxy) j["proxy"] = proxy_to_json(*spec.proxy);
  return j.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::string to_json(const ProxySpec& proxy) {
  return proxy_to_json(proxy).dump(-1, ' ', false, json::error_handler_t::replace);
}

Result<SandboxSpec> spec_from_json(std::string_view text) {
  try {
    const json j = json::parse(text);
    SandboxSpec spec;
    spec.name = j.at("name");
    spec.run_dir = j.at("run_dir");
    spec.image = j.at("image");
    spec.command = j.at("command").get<std::vector<std::string>>();
    spec.qemu = {j.at("qemu").at("binary"), j.at("qemu").at("binds")};
    spec.shape = {j.at("memory_mib"), j.at("cpus"),
                  j.at("kvm").get<bool>() ? Accel::kKvm : Accel::kTcg};
    spec.boot_key = j.at("boot_key");
    spec.disk_bytes = j.at("disk_bytes");
    spec.allow = j.at("allow").get<std::vector<std::string>>();
    spec.deny = j.at("deny").get<std::vector<std::string>>();
    for (const json& share : j.at("shares")) spec.shares.push_back(share_from_json(share));
    spec.workspace = j.at("workspace");
    const int profile = j.at("profile");
    if (profile < 0 || profile > 2) return fail(Code::kInvalid, "unknown profile {}", profile);
    spec.profile = static_cast<channel::Profile>(profile);
    spec.ask = j.at("ask");
    spec.publish = j.at("publish").get<std::vector<uint16_t>>();
    spec.mtu = j.at("mtu");
    spec.host_roots = j.at("host_roots");
    if (j.contains("proxy")) spec.proxy = proxy_from_json(j.at("proxy"));
    return spec;
  } catch (const json::exception& error) {
    return fail(Code::kInvalid, "the specification of the sandbox: {}", error.what());
  }
}

}  // namespace sandbox
