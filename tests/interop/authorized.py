"""A Java 5.x broker that requires authentication."""

import json

ROOT = {"username": "rootuser", "password": "root_secret"}
KEYS = {"accessKey": ROOT["username"], "secretKey": ROOT["password"]}
PROVIDERS = "org.apache.rocketmq.auth"
SETTINGS = {
    "authenticationEnabled": "true",
    "authenticationProvider": (
        f"{PROVIDERS}.authentication.provider.DefaultAuthenticationProvider"
    ),
    "authenticationMetadataProvider": (
        f"{PROVIDERS}.authentication.provider.LocalAuthenticationMetadataProvider"
    ),
    "initAuthenticationUser": json.dumps(ROOT),
    "innerClientAuthenticationCredentials": json.dumps(KEYS),
    "authorizationEnabled": "true",
    "authorizationProvider": f"{PROVIDERS}.authorization.provider.DefaultAuthorizationProvider",
    "authorizationMetadataProvider": (
        f"{PROVIDERS}.authorization.provider.LocalAuthorizationMetadataProvider"
    ),
}
