"""Files and arguments become frozen, validated models; nothing here runs anything."""
