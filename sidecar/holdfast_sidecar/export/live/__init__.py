"""The live view: what the page in the browser and `holdfast top` show."""
