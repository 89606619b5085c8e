"""Which proxy requests to an API server use."""

import pytest

from controller.kube.proxy import proxy_for

PROXY = "http://proxy:3128"


@pytest.mark.parametrize(
    ("server", "environment", "proxy"),
    [
        pytest.param("https://api.example.com", {}, "", id="none"),
        pytest.param("https://api.example.com", {"HTTPS_PROXY": PROXY}, PROXY, id="of HTTPS"),
        pytest.param("https://api.example.com", {"https_proxy": PROXY}, PROXY, id="in lower case"),
        pytest.param("https://api.example.com", {"HTTP_PROXY": PROXY}, "", id="of HTTP only"),
        pytest.param("http://api.example.com", {"HTTP_PROXY": PROXY}, PROXY, id="of HTTP"),
        pytest.param("https://api.example.com", {"HTTPS_PROXY": "proxy:3128"}, PROXY, id="without a scheme"),
        pytest.param("https://localhost:6443", {"HTTPS_PROXY": PROXY}, "", id="this machine"),
        pytest.param("https://127.0.0.2:6443", {"HTTPS_PROXY": PROXY}, "", id="a loopback address"),
        pytest.param("https://[::1]:6443", {"HTTPS_PROXY": PROXY}, "", id="the IPv6 loopback address"),
    ],
)
def test_the_proxy_of_the_environment(server: str, environment: dict[str, str], proxy: str) -> None:
    assert proxy_for(server, environment=environment) == proxy


@pytest.mark.parametrize(
    ("server", "no_proxy", "is_direct"),
    [
        pytest.param("https://api.example.com", "*", True, id="everything"),
        pytest.param("https://api.example.com", "example.com", True, id="a domain"),
        pytest.param("https://example.com", "example.com", True, id="the host itself"),
        pytest.param("https://example.com", ".example.com", False, id="subdomains only"),
        pytest.param("https://api.example.com", "*.example.com", True, id="a wildcard"),
        pytest.param("https://badexample.com", "example.com", False, id="another domain of that end"),
        pytest.param("https://API.example.com", "a.b, api.Example.com ", True, id="case and spaces"),
        pytest.param("https://10.1.2.3:6443", "10.0.0.0/8", True, id="a network"),
        pytest.param("https://11.1.2.3:6443", "10.0.0.0/8", False, id="another network"),
        pytest.param("https://[fd00::7]:6443", "fd00::/8", True, id="an IPv6 network"),
        pytest.param("https://10.1.2.3:6443", "10.1.2.3", True, id="an address"),
        pytest.param("https://10.1.2.3:6443", "10.1.2.3:6443", True, id="an address and its port"),
        pytest.param("https://10.1.2.3:6443", "10.1.2.3:443", False, id="another port"),
        pytest.param("https://api.example.com", "example.com:443", True, id="the default port"),
        pytest.param("https://[fd00::7]:6443", "[fd00::7]:6443", True, id="an IPv6 address and its port"),
    ],
)
def test_exceptions_from_the_proxy(server: str, no_proxy: str, is_direct: bool) -> None:
    found = proxy_for(server, environment={"HTTPS_PROXY": PROXY, "no_proxy": no_proxy})

    assert found == ("" if is_direct else PROXY)


def test_the_proxy_of_the_kubeconfig_precedes_the_environment() -> None:
    environment = {"HTTPS_PROXY": PROXY, "NO_PROXY": "*"}

    assert proxy_for("https://a", "https://own:1", environment) == "https://own:1"


@pytest.mark.parametrize("proxy", ["socks5://user:opensesame@proxy:1080", "ftp://proxy"])
def test_other_proxies_are_refused_without_their_password(proxy: str) -> None:
    for proxy_url, environment in ((proxy, {}), ("", {"HTTPS_PROXY": proxy})):
        with pytest.raises(ValueError, match="only http:// and https:// are supported") as caught:
            proxy_for("https://a", proxy_url, environment)
        assert "opensesame" not in str(caught.value)
