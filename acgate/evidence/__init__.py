"""What runs leave behind: records, file names, and an atomic store. No torch."""
