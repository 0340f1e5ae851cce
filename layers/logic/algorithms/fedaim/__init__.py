"""FedAIM: mediators for extremely biased clients, two servers, and an exchange of their models.

What Astraea needs as well belongs in `mediators`.
"""
