"""What users install is the wheel, not this folder."""
