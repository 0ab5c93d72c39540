"""The plugin that pytest loads at start-up: it imports pytest and nothing else until there is work."""
