// sandbox ports: which ports of this host lead into a sandbox, while it runs; more, and fewer.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/live.h"
#include "cli/output.h"
#include "cli/publish.h"
#include "cli/words.h"

namespace sandbox::cli {

namespace {

constexpr std::string_view kManual = R"(sandbox ports [FLAGS] NAME

Show which ports of this host lead into a running sandbox, and change them.

  sandbox ports NAME
  sandbox ports NAME --publish 8080:80             as for run -p
  sandbox ports NAME --unpublish 8080:80           that one
  sandbox ports NAME --unpublish 80                all that lead to port 80 inside
  sandbox ports --json NAME | jq -r '.[].port'

  -p, --publish [[ADDRESS:]HOST:]GUEST     connect HOST of this host with GUEST inside; repeatable
  --unpublish [[ADDRESS:]HOST:]GUEST       no longer; who is connected is cut off; repeatable
  --json                                   one JSON array

Without ADDRESS only this host itself can connect (127.0.0.1); without HOST a free port is taken. Inside,
nothing needs to listen yet. The list is printed as it is after the changes.
)";

struct PortsArgs {
  std::string name;
  std::vector<PublishSpec> publish;
  std::vector<PublishSpec> unpublish;
  bool json = false;
};

Result<PortsArgs> parse_args(std::vector<std::string> words) {
  PortsArgs args;
  std::vector<std::string> publish;
  std::vector<std::string> unpublish;
  CLI::App app;
  add_repeatable(app, "-p,--publish", publish);
  add_repeatable(app, "--unpublish", unpublish);
  app.add_flag("--json", args.json);
  app.add_option("NAME", args.name)->required();
  TRY(parse_words(app, "ports", std::move(words)));
  for (const std::string& word : publish) {
    ASSIGN(args.publish.emplace_back(), parse_publish(word));
  }
  for (const std::string& word : unpublish) {
    ASSIGN(args.unpublish.emplace_back(), parse_publish(word));
  }
  return args;
}

Status unpublish(LiveSandbox& sandbox, const PortsArgs& args) {
  for (const PublishSpec& spec : args.unpublish)
    TRY(sandbox.ask(control::Unpublish{spec.address ? spec.address->text() : "",
                                       spec.host.value_or(0), spec.guest}));
  return {};
}

// Every socket is opened before the first is handed over: one that is in use changes nothing.
Status publish(LiveSandbox& sandbox, const PortsArgs& args) {
  std::vector<Listener> listeners;
  for (const PublishSpec& spec : args.publish) {
    ASSIGN(listeners.emplace_back(), listen_at(spec));
  }
  for (const Listener& listener : listeners)
    TRY(sandbox.ask(control::Publish{listener.port.guest}, {listener.socket.get()}));
  return {};
}

void print(const std::vector<control::Port>& ports, bool json) {
  if (json) {
    nlohmann::json out = nlohmann::json::array();
    for (const control::Port& port : ports)
      out.push_back({{"address", port.address.text()}, {"port", port.port}, {"guest", port.guest}});
    return fmt::print("{}\n", out.dump());
  }
  size_t width = 4;
  for (const control::Port& port : ports) width = std::max(width, control::host_side(port).size());
  fmt::print("{:<{}}  GUEST\n", "HOST", width);
  for (const control::Port& port : ports)
    fmt::print("{:<{}}  {}\n", control::host_side(port), width, port.guest);
}

Result<std::vector<control::Port>> answer(const PortsArgs& args) {
  ASSIGN(const Home home, Home::open());
  ASSIGN(LiveSandbox sandbox, LiveSandbox::connect(home, args.name));
  TRY(unpublish(sandbox, args));
  TRY(publish(sandbox, args));
  ASSIGN(const control::Reply reply, sandbox.ask(control::Ports{}));
  return reply.ports;
}

int run(std::vector<std::string> words) {
  const auto args = parse_args(std::move(words));
  if (!args) return fail_with(args.error(), kUsage);
  const auto ports = answer(*args);
  if (!ports) return fail_with(ports.error(), kFailed);
  if (ports->empty() && !args->json) {
    print_note(fmt::format("no port of this host leads into '{}'", args->name));
    return kDone;
  }
  print(*ports, args->json);
  return kDone;
}

}  // namespace

extern const Command kPorts;
const Command kPorts{"ports", "show and change which ports of this host lead inside", kManual, run};

}  // namespace sandbox::cli
