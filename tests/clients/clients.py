"""The clients that are put in front of the gateway, and how each is asked for a page.

A client is one shell command with a {host} in it, run unchanged against four hosts:

  open.test     allowed: the control, real servers behind real TLS wherever the client does TLS
  shut.test     the same servers under a name that no rule allows: refused at the DNS gate
  back.test     the same servers under a name that is not allowed either, found in /etc/hosts: the name inside the connection
                is refused (TLS alert, or HTTP 403)
  ADDRESS       the same servers by their address, before a name has vouched for it: refused at the SYN

`words` is what a person is told for each. Scripts are looked for in $CLIENTS, certificates and keys in $KEYS, and $WORK is
a folder of the client's own.
"""

import re

OPEN, SHUT, BACK = "open.test", "shut.test", "back.test"
SITE = "50.50.50.20"
CASES = {"allowed": OPEN, "name": SHUT, "stream": BACK, "address": SITE}

# Where each client looks for the authority to trust; wget and Java take it as an option only.
ENVIRONMENT = {
    "SSL_CERT_FILE": "$KEYS/ca.pem", "CURL_CA_BUNDLE": "$KEYS/ca.pem", "GIT_SSL_CAINFO": "$KEYS/ca.pem",
    "REQUESTS_CA_BUNDLE": "$KEYS/ca.pem", "PIP_CERT": "$KEYS/ca.pem", "NODE_EXTRA_CA_CERTS": "$KEYS/ca.pem",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1", "NPM_CONFIG_UPDATE_NOTIFIER": "false", "NPM_CONFIG_CACHE": "$WORK/npm",
    "GIT_TERMINAL_PROMPT": "0", "NO_COLOR": "1",
}

UNKNOWN = "Could not resolve|not known|does not resolve|ENOTFOUND|no such host|UnknownHost|unable to resolve|No address associated"
REFUSED = "refused|ECONNREFUSED|Failed to connect|Could not connect"
ALERT = "(?i)alert access denied|access was denied|access_denied|bad status|ACCESS_DENIED"
APT = ("-o Dir::Etc::sourcelist=$WORK/sources.list -o Dir::Etc::sourceparts=- -o Dir::State::lists=$WORK/lists "
       "-o APT::Sandbox::User=root -o APT::Update::Error-Mode=any -o Dir::Cache=$WORK/cache")


class Client:
    """`remedy`: why it takes longer than the contract says, and what helps."""

    def __init__(self, name, command, expect="allowed page", cases=tuple(CASES), stream=ALERT, unknown=UNKNOWN, refused=REFUSED,
                 remedy=""):
        self.name, self.command, self.expect, self.cases, self.remedy = name, command, expect, cases, remedy
        self.words = {"allowed": re.escape(expect), "name": unknown, "stream": stream, "address": refused}


def apt(name, options="", remedy=""):
    command = ("mkdir -p $WORK/lists/partial $WORK/cache/archives/partial && echo 'deb [trusted=yes] http://{host}/debian ./' > $WORK/sources.list && "
               f"apt-get {APT} {options} update && cd $WORK && apt-get {APT} download sandbox-demo && ls")
    return Client(name, command, "sandbox-demo_1.0_all.deb", stream="403", remedy=remedy)


PIP = "python3 -m pip download --no-deps --no-cache-dir -q -d $WORK -i https://{host}/simple sandbox-demo && ls $WORK"
NPM = "mkdir -p $WORK/p && cd $WORK/p && npm install --no-audit --no-fund --registry https://{host}/npm/ left-shift"
NO_NAME_SHOWN = ("allowed", "name", "address")

CLIENTS = [
    Client("curl", "curl -sS https://{host}/page"),
    Client("curl, plain HTTP", "curl -sS --fail-with-body http://{host}/page", stream="--allow back.test:80"),
    Client("wget", "wget -nv -O- --ca-certificate=$KEYS/ca.pem https://{host}/page"),
    Client("git", "git ls-remote https://{host}/git/demo.git", "refs/heads/main"),
    apt("apt, as in the built-in image", "-o Acquire::Retries::Delay=false"),
    apt("apt, as it comes", remedy="it sleeps 1, 2 and 4 seconds between its attempts, whatever the answer. `-o Acquire::Retries=0` asks once; "
        "`Acquire::Retries::Delay \"false\";` in a file of `/etc/apt/apt.conf.d`, which the built-in image has, does not sleep."),
    Client("Python urllib", "python3 $CLIENTS/get.py urllib https://{host}/page"),
    Client("Python http.client", "python3 $CLIENTS/get.py http.client https://{host}/page"),
    Client("Python requests", "python3 $CLIENTS/get.py requests https://{host}/page"),
    Client("Node, getaddrinfo", "node $CLIENTS/get.js https://{host}/page"),
    Client("Node, c-ares", "node $CLIENTS/resolve.js {host}", SITE, cases=("allowed", "name")),
    Client("musl, static", "$CLIENTS/musl_get {host}", stream="--allow back.test:80"),
    Client("ssh", "ssh -o BatchMode=yes -o UserKnownHostsFile=$KEYS/known_hosts -o StrictHostKeyChecking=yes -i $KEYS/id_ssh root@{host} "
           "echo allowed page", cases=NO_NAME_SHOWN),
    Client("pip", PIP, "sandbox_demo"),
    Client("pip, its own pauses", "unset PIP_RETRIES; " + PIP, "sandbox_demo", cases=("allowed", "name"),
           remedy="without `PIP_RETRIES`, which the sandbox sets to 1, it tries five times with growing pauses. `--retries 0` asks once."),
    Client("npm", NPM, "added 1 package"),
    Client("npm, its own pauses", "unset NPM_CONFIG_FETCH_RETRY_MINTIMEOUT NPM_CONFIG_FETCH_RETRY_MAXTIMEOUT; " + NPM, "added 1 package",
           cases=("allowed", "name"),
           remedy="without the variables that the sandbox sets, it sleeps 10 s and then 60 s between its attempts. `--fetch-retries=0` asks once."),
    Client("Go", "$CLIENTS/go_get https://{host}/page", stream="access denied"),
    Client("Java", "java -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Djavax.net.ssl.trustStore=$KEYS/trust.p12 "
           "-Djavax.net.ssl.trustStorePassword=changeit -cp $CLIENTS Get https://{host}/page"),
    Client("psql", "psql -At 'host={host} user=demo dbname=demo sslmode=verify-full sslrootcert='$KEYS/ca.pem "
           "-c \"select 'allowed page'\"", cases=NO_NAME_SHOWN),
    Client("redis-cli", "redis-cli -e -h {host} get page", cases=NO_NAME_SHOWN),
    Client("redis-cli, TLS", "redis-cli -e -h {host} -p 6380 --tls --sni {host} --cacert $KEYS/ca.pem get page",
           cases=("allowed", "name", "stream")),  # an address is no ServerName
]
