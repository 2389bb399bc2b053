"""What the device is and what it measures."""
