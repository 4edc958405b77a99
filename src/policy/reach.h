#pragma once
// What a rule reaches, in words: so that whoever is about to allow something sees how much it is.

#include <string>

#include "policy/host_pattern.h"

namespace sandbox::policy {

// "TCP port 443 of www.example.org, wherever it resolves in public space"
std::string allow_reach(const HostPattern& rule);

}  // namespace sandbox::policy
