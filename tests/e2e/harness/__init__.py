"""What the stories stand on: a service of their own, its wire, its contract, its command line."""
