"""FedAlign's transmitting matrix of one sample, by loops over channels and places."""


def transmitting_matrix(before, after):
    """Both are nested lists [channel][row][column] of one size."""
    places = [(row, column) for row in range(len(before[0])) for column in range(len(before[0][0]))]
    return [
        [
            sum(one[row][column] * two[row][column] for row, column in places) / len(places)
            for two in after
        ]
        for one in before
    ]
