"""get.py urllib|http.client|requests URL: prints the page, or ends with the library's own words."""
import sys
import urllib.parse

how, url = sys.argv[1:]
try:
    if how == "urllib":
        import urllib.request

        text = urllib.request.urlopen(url).read().decode()
    elif how == "requests":
        import requests

        text = requests.get(url).text
    else:
        import http.client

        parts = urllib.parse.urlsplit(url)
        connection = http.client.HTTPSConnection(parts.netloc)
        connection.request("GET", parts.path)
        text = connection.getresponse().read().decode()
except OSError as e:
    sys.exit(f"{type(e).__name__}: {e}")
print(text, end="")
