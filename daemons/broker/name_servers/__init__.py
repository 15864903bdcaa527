"""The broker's side of name servers: registration and beacons."""
