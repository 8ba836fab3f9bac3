"""What is saved of a rank and given back: its objects, their formats, and where it resumes."""
